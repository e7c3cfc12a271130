"""gcp-storage-emulator with uploads read byte for byte: python -m tests.gcs_server PORT.

It reads an upload as an e-mail, whose last line end it takes for a part of the boundary: files that
end in a carriage return lose it.
"""

import json
import re
import sys

from gcp_storage_emulator import server

_read = server._read_data


def read_upload(request_handler, query):
    """As the emulator's, but for uploads in two parts, JSON and the content."""
    kind = request_handler.headers.get("Content-Type") or ""
    if not kind.startswith("multipart/related"):
        return _read(request_handler, query)
    boundary = re.search(r'boundary="?([^";]+)', kind)[1].strip("'").encode()  # pyright: ignore[reportOptionalSubscript]
    raw = server._read_raw_data(request_handler) or b""
    _, meta, content, _ = raw.split(b"--" + boundary)
    end = b"\r\n" if meta.startswith(b"\r\n") else b"\n"
    bodies = [part.split(end + end, 1)[1].removesuffix(end) for part in (meta, content)]
    header = content.split(end + end, 1)[0].decode()
    found = re.search(r"Content-Type: *([^\s;]+)", header, re.IGNORECASE)
    name = found[1] if found else "application/octet-stream"
    return {"meta": json.loads(bodies[0]), "content": bodies[1], "content-type": name}


if __name__ == "__main__":
    server._read_data = read_upload
    server.create_server("127.0.0.1", int(sys.argv[1]), True).run()
