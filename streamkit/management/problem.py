"""The answer to a request that cannot be fulfilled."""

from collections.abc import Mapping

from starlette.responses import JSONResponse, Response

from streamkit.config.secret import without_secrets

__all__ = ["problem"]


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer that says what is wrong, as JSON.

    Args:
        status: The status code.
        detail: What is wrong, and what to do; secrets in it are hidden.
        headers: Further headers.
    """
    return JSONResponse(
        {"status": status, "error": without_secrets(detail)}, status_code=status, headers=headers
    )
