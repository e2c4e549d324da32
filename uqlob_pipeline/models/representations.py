"""Windows as the encoder of a joint training sees them, computed once for both heads and for every horizon of a symbol.

torch is imported inside functions, to keep it out of the code server.
"""

import hashlib
from typing import TYPE_CHECKING, Any

from uqlob_pipeline.config.profile import Profile

if TYPE_CHECKING:
    from uqlob_models.dataset import WindowDataset
    from uqlob_models.encoders import Encoder
    from uqlob_models.frozen import FrozenWindows
    from uqlob_models.model import UqModel
    from uqlob_models.prediction import Encode

_latest: dict[str, "FrozenWindows"] = {}  # of the last encoder and windows: the horizons of a symbol follow one another


def shared_encode(profile: Profile, members: list["UqModel"], dataset: "WindowDataset", targets: Any) -> "Encode | None":
    """Looks up the representations of the targets and their contexts; None where the members' encoders differ or draw dropout."""
    if profile.training.joint == "none" or profile.training.mc_dropout_passes:
        return None
    encoders = {_encoder_hash(member.encoder) for member in members}
    if len(encoders) > 1:
        return None
    import numpy as np

    from uqlob_models.frozen import freeze, freeze_more

    stores = "\n".join(store.version for store in dataset.stores)
    key = f"{encoders.pop()}-{hashlib.blake2b(stores.encode(), digest_size=12).hexdigest()}"
    needed = np.union1d(targets, dataset.context(members[0].config.head.context).windows(targets))
    known, encoder = _latest.get(key), members[0].encoder
    mirror = profile.training.mirror_predictions
    _latest.clear()
    _latest[key] = (
        freeze(encoder, dataset, needed, mirror=mirror) if known is None else freeze_more(known, encoder, dataset, needed)
    )
    return _latest[key].encode


def _encoder_hash(encoder: "Encoder") -> str:
    """Of everything that a representation depends on: the logits, which differ from horizon to horizon, do not count."""
    content = hashlib.blake2b(digest_size=12)
    for name, value in sorted(encoder.state_dict().items()):
        if not name.startswith("logits."):
            content.update(name.encode())
            content.update(value.detach().cpu().numpy().tobytes())
    return content.hexdigest()
