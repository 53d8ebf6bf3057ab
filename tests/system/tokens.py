"""JSON web tokens for tests, made with the standard library and the openssl command: nothing of ours."""

import base64
import hashlib
import hmac
import json
import os
import subprocess
import time

SECRET = b"a secret of the tests, long enough for HS256"


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def claims(role=None, job=None, ranks=None, lasts=600, **more):
    """What `tutti token make` would say; None = not there."""
    found = {"aud": "tutti", "sub": "tests", "exp": int(time.time()) + lasts}
    found.update(role=role, job=job, ranks=ranks)
    found.update(more)
    return {name: value for name, value in found.items() if value is not None}


def unsigned(body, algorithm, **header):
    head = dict({"alg": algorithm, "typ": "JWT"}, **header)
    return b64(json.dumps(head).encode()) + "." + b64(json.dumps(body).encode())


def hs256(body, secret=SECRET, **header):
    text = unsigned(body, "HS256", **header)
    return text + "." + b64(hmac.new(secret, text.encode(), hashlib.sha256).digest())


def openssl(*words, data=None):
    done = subprocess.run(
        ["openssl"] + list(words),
        input=data,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
        close_fds=False,
    )
    return done.stdout


def make_key(folder, kind):
    """A key pair; the paths of the private and the public half."""
    private, public = (os.path.join(folder, kind + end) for end in (".key", ".pub"))
    options = {
        "RS256": ("-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"),
        "ES256": ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"),
    }[kind]
    openssl("genpkey", *options, "-out", private)
    openssl("pkey", "-in", private, "-pubout", "-out", public)
    return private, public


def rs256(body, private, **header):
    text = unsigned(body, "RS256", **header)
    return text + "." + b64(openssl("dgst", "-sha256", "-sign", private, data=text.encode()))


def integers(der):
    """The two numbers of an ECDSA signature, 32 bytes each."""
    at, found = 2, []
    for _ in range(2):
        size = der[at + 1]
        found.append(int.from_bytes(der[at + 2 : at + 2 + size], "big").to_bytes(32, "big"))
        at += 2 + size
    return b"".join(found)


def es256(body, private, **header):
    text = unsigned(body, "ES256", **header)
    der = openssl("dgst", "-sha256", "-sign", private, data=text.encode())
    return text + "." + b64(integers(der))


def jwk_rsa(public, kid):
    """The JSON form of a public RSA key with the usual exponent."""
    modulus = openssl("rsa", "-pubin", "-in", public, "-noout", "-modulus").decode()
    number = bytes.fromhex(modulus.strip().split("=")[1])
    return {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": kid, "n": b64(number), "e": "AQAB"}


def jwk_ec(public, kid):
    der = openssl("pkey", "-pubin", "-in", public, "-outform", "DER")
    return {"kty": "EC", "crv": "P-256", "kid": kid, "x": b64(der[-64:-32]), "y": b64(der[-32:])}
