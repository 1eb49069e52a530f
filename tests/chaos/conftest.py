"""Worker processes to be harmed, as the supervisor's own tests have them."""

from tests.supervisor.conftest import site

__all__ = ["site"]
