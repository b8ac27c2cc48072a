"""Download files that an index named, into numbered folders; says what became of each.

Runs with network and without any foreign code; standard library only, Python 3.8 and later.
Input: a JSON list of {"url", "name", "sha256"}. Output: a JSON list of {"problem", "detail",
"sha256"}, in the same order; an empty problem is a file at /qh/got/<number>/<name>.
"""

import base64
import hashlib
import http.client
import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor

AT_ONCE = 8
TRIES = 3
PIECE = 1024 * 1024
# Not there for us now, as against not there at all.
CLOSED = (401, 403, 407, 408, 425, 429)
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


def indexes():
    """Return the configured indexes, parsed."""
    words = os.environ.get("UV_DEFAULT_INDEX", "") + " " + os.environ.get("UV_INDEX", "")
    # uv's own way of naming an index: name=url.
    texts = [
        word[word.find("=") + 1 :] if "=" in word.split(":")[0] else word for word in words.split()
    ]
    return [urllib.parse.urlsplit(text) for text in texts]


def credentials():
    """Return by scheme, host and port what the configured indexes want as authorization."""
    found = {}
    for parts in indexes():
        if parts.username is not None:
            user = urllib.parse.unquote(parts.username)
            word = urllib.parse.unquote(parts.password or "")
            text = base64.b64encode("{}:{}".format(user, word).encode()).decode()
            found[(parts.scheme, parts.hostname, parts.port)] = "Basic " + text
    return found


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follows to HTTP and HTTPS alone, and never from HTTPS to HTTP."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        """Refuse what leaves the web."""
        scheme = urllib.parse.urlsplit(newurl).scheme
        if scheme != "https" and not (scheme == "http" and req.type == "http"):
            raise PermissionError("a redirect that leaves the web")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def opener():
    """Return what opens HTTP and HTTPS with this host's certificates and proxies."""
    context = ssl.create_default_context()
    if not os.environ.get("SSL_CERT_FILE") and os.path.exists(CERTIFICATES):
        context.load_verify_locations(CERTIFICATES)
    proxies = urllib.request.getproxies()
    for scheme in ("http", "https"):
        if "all" in proxies:
            proxies.setdefault(scheme, proxies["all"])
    return urllib.request.build_opener(
        urllib.request.ProxyHandler(proxies),
        urllib.request.HTTPSHandler(context=context),
        Redirects(),
    )


def stream(url, web, known, timeout):
    """Open one address for reading."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        path = os.path.realpath(urllib.request.url2pathname(parts.path))
        for index in indexes():
            folder = os.path.realpath(urllib.request.url2pathname(index.path))
            if index.scheme == "file" and path.startswith(folder + os.sep):
                return open(path, "rb")
        raise PermissionError("outside the configured index")
    if parts.scheme not in ("http", "https"):
        raise PermissionError("not an address of the web")
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity"})
    word = known.get((parts.scheme, parts.hostname, parts.port))
    if word:
        # Not sent again after a redirect to somewhere else.
        request.add_unredirected_header("Authorization", word)
    return web.open(request, timeout=timeout)


def save(number, row, web, known, timeout):
    """Download one file and say what became of it."""
    folder = "/qh/got/%d" % number
    os.makedirs(folder, exist_ok=True)
    digest = hashlib.sha256()
    with stream(row["url"], web, known, timeout) as source:
        with open(os.path.join(folder, row["name"]), "wb") as target:
            for piece in iter(lambda: source.read(PIECE), b""):
                digest.update(piece)
                target.write(piece)
    if row["sha256"] and digest.hexdigest() != row["sha256"]:
        return {"problem": "content", "detail": digest.hexdigest(), "sha256": ""}
    return {"problem": "", "detail": "", "sha256": digest.hexdigest()}


def attempt(number, row, web, known, timeout):
    """Download one file, again where the network failed."""
    problem = {}
    for turn in range(TRIES):
        if turn:
            time.sleep(turn)
        try:
            return save(number, row, web, known, timeout)
        except urllib.error.HTTPError as error:
            closed = error.code in CLOSED or error.code >= 500
            problem = {"problem": "closed" if closed else "gone", "detail": "HTTP %d" % error.code}
            if not closed:
                break
        except PermissionError as error:
            problem = {"problem": "refused", "detail": str(error)}
            break
        except FileNotFoundError:
            problem = {"problem": "gone", "detail": "no such file"}
            break
        except (OSError, http.client.HTTPException, ValueError) as error:
            problem = {"problem": "closed", "detail": type(error).__name__}
    return dict(problem, sha256="")


def main():
    """Download everything that was asked for."""
    rows = json.load(sys.stdin)
    web, known = opener(), credentials()
    timeout = float(os.environ.get("UV_HTTP_TIMEOUT") or 30)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        jobs = [
            pool.submit(attempt, number, row, web, known, timeout)
            for number, row in enumerate(rows)
        ]
        json.dump([job.result() for job in jobs], sys.stdout)


main()
