"""WhiteNoise on both sides of the sync/async line.

Its own middleware is synchronous: under ASGI it would put every request, also a long stream, behind a thread, and hand
Django files as iterators that an event loop cannot read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.responders import StaticFile


class StaticFilesMiddleware(WhiteNoiseMiddleware):
    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        super().__init__(get_response)
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        return self._respond(request) if self.is_async else super().__call__(request)

    async def _respond(self, request: HttpRequest) -> HttpResponseBase:
        find = self.find_file if self.autorefresh else self.files.get
        static_file = find(request.path_info)
        if static_file is not None:
            return await sync_to_async(self.serve, thread_sensitive=False)(static_file, request)
        return await self.get_response(request)

    @staticmethod
    def serve(static_file: StaticFile, request: HttpRequest) -> HttpResponseBase:
        """The whole file as one body: front-end files are small, and read once per browser."""
        streamed = WhiteNoiseMiddleware.serve(static_file, request)
        try:
            body = b"".join(streamed.streaming_content)
        finally:
            streamed.close()
        response = HttpResponse(body, status=streamed.status_code)
        del response["content-type"]
        for name, value in streamed.items():
            response[name] = value
        if body:
            # A file that was written again since the start has another length than was noted then.
            response["content-length"] = str(len(body))
        return response
