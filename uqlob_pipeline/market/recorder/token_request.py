"""One HTTPS request for a token, bounded in time and size, without redirects."""

import asyncio
import json
from typing import Any

import httpx

MAX_ANSWER_BYTES, MAX_HEADERS = 1 << 16, 100
# What a wrong answer can raise: connection, protocol, encoding, nesting.
BAD_ANSWER = (OSError, httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError, AttributeError, RecursionError)


async def post_form(address: str, form: dict[str, str], headers: dict[str, str], seconds: float) -> Any:
    """The JSON answer to a POST request. Raises one of BAD_ANSWER; TimeoutError if it takes more than `seconds` altogether."""
    try:
        # A client's own timeout starts again with every byte, so that a server that sends slowly would never reach it.
        async with asyncio.timeout(seconds):
            return json.loads(await _answer(address, form, headers, seconds))
    except TimeoutError:
        raise TimeoutError(f"no complete answer within {seconds:g} s") from None


async def _answer(address: str, form: dict[str, str], headers: dict[str, str], seconds: float) -> bytes:
    client = httpx.AsyncClient(follow_redirects=False, timeout=seconds, trust_env=False)
    async with client, client.stream("POST", address, data=form, headers=headers) as response:
        if response.is_redirect or response.has_redirect_location:
            raise ValueError(f"it answers {response.status_code}, and a redirect is not followed with an API key")
        if response.is_error:
            raise OSError(f"it answers {response.status_code} {response.reason_phrase}")
        header_bytes = sum(len(name) + len(value) for name, value in response.headers.raw)
        if len(response.headers.raw) > MAX_HEADERS or header_bytes > MAX_ANSWER_BYTES:
            raise ValueError(f"its answer has {len(response.headers.raw)} headers of {header_bytes} bytes")
        answer = b""
        async for part in response.aiter_bytes():
            answer += part
            if len(answer) > MAX_ANSWER_BYTES:
                raise ValueError(f"its answer is longer than {MAX_ANSWER_BYTES} bytes")
        return answer
