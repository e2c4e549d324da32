"""The jobs that Dagster makes of the values in docs/deploy/kubernetes are valid for Kubernetes, without a cluster."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.cluster
VALUES = Path(__file__).parents[2] / "docs" / "deploy" / "kubernetes" / "values.yaml"


@pytest.fixture
def values() -> dict[str, Any]:
    for package in ("dagster_k8s", "kubernetes_validate"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is missing: make test-cluster installs '.[cluster-test]'")
    found: dict[str, Any] = yaml.safe_load(VALUES.read_text())
    return found


def job_of(values: dict[str, Any]) -> dict[str, Any]:
    from dagster_k8s.client import DagsterKubernetesClient  # noqa: F401 (fails here where the package is broken)
    from dagster_k8s.job import DagsterK8sJobConfig, UserDefinedDagsterK8sConfig, construct_dagster_k8s_job
    from kubernetes.client import ApiClient

    launcher = values["runLauncher"]["config"]["k8sRunLauncher"]
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    image = f"{deployment['image']['repository']}:{deployment['image']['tag']}"
    config = DagsterK8sJobConfig(
        job_image=image,
        dagster_home="/opt/dagster/dagster_home",
        instance_config_map="dagster-instance",
        image_pull_policy=launcher["imagePullPolicy"],
        env_secrets=[secret["name"] for secret in launcher["envSecrets"]],
        volumes=launcher["volumes"],
        volume_mounts=launcher["volumeMounts"],
        resources=launcher["resources"],
    )
    extra = {
        "job_spec_config": launcher["runK8sConfig"]["jobSpecConfig"],
        "pod_spec_config": launcher["runK8sConfig"]["podSpecConfig"],
    }
    job = construct_dagster_k8s_job(
        config,
        ["dagster", "api", "execute_run"],
        "dagster-run-0123",
        user_defined_k8s_config=UserDefinedDagsterK8sConfig.from_dict(extra),
        env_vars=deployment["env"],
    )
    found: dict[str, Any] = ApiClient().sanitize_for_serialization(job)
    return found


def test_the_job_of_a_run_is_valid(values: dict[str, Any]) -> None:
    import kubernetes_validate

    job = job_of(values)
    kubernetes_validate.validate(job, kubernetes_validate.latest_version(), strict=True)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert job["spec"]["backoffLimit"] == 0
    assert container["resources"]["requests"] == {"cpu": "1", "memory": "4Gi"}
    assert {"name": "scratch", "mountPath": "/scratch"} in container["volumeMounts"]
    assert {"secretRef": {"name": "uqlob"}} in container["envFrom"]
    assert {"name": "UQLOB_LAKE", "value": "s3://lake/uqlob"} in container["env"]


def test_a_job_with_a_typing_error_is_refused(values: dict[str, Any]) -> None:
    """The validation sees what it should see."""
    import kubernetes_validate

    job = job_of(values)
    job["spec"]["template"]["spec"]["containers"][0]["resourcess"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, kubernetes_validate.latest_version(), strict=True)


def test_no_secret_is_written_into_the_values(values: dict[str, Any]) -> None:
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    assert not [one["name"] for one in deployment["env"] if "SECRET" in one["name"] or "KEY" in one["name"]]
