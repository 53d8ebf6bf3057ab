"""Certificates, made with the openssl command, and JSON web tokens, by `tutti token`, for one test."""

import os
import subprocess
import tempfile

import support

KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


class Secrets:
    """An authority; a certificate for servers on 127.0.0.1 and one for clients; a token for each role."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-clients-")
        self._openssl("req", "-x509", "-days", "2", *KEY, "-subj", "/CN=tests", *self._out("ca"))
        for name in ("server", "client"):
            self._leaf(name)
        self._tutti("token", "key", self.path("key"))
        for role in ("agent", "client"):
            words = ["--role", role, "--job", "default", "-o", self.path(role + ".token")]
            self._tutti("token", "make", self.path("key"), *words)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def _out(self, name, end="pem"):
        return ["-keyout", self.path(name + ".key"), "-out", self.path(name + "." + end)]

    def _openssl(self, *words):
        subprocess.run(("openssl",) + words, check=True, stderr=subprocess.DEVNULL, close_fds=False)

    def _leaf(self, name):
        with open(self.path("names"), "w") as file:
            file.write("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        self._openssl("req", *KEY, "-subj", "/CN=" + name, *self._out(name, "csr"))
        self._openssl(
            "x509",
            "-req",
            "-days",
            "2",
            "-in",
            self.path(name + ".csr"),
            "-CA",
            self.path("ca.pem"),
            "-CAkey",
            self.path("ca.key"),
            "-CAcreateserial",
            "-extfile",
            self.path("names"),
            "-out",
            self.path(name + ".pem"),
        )

    def _tutti(self, *words):
        code, out, err = support.run("tutti", *words)
        assert code == 0, out + err

    def server_options(self):
        """Everybody has to show a certificate and a token."""
        options = ["--tls-cert", self.path("server.pem"), "--tls-key", self.path("server.key")]
        return options + ["--tls-client-ca", self.path("ca.pem"), "--token-keys", self.path("key")]

    def agent_options(self):
        options = self.server_options() + ["--coordinator-ca", self.path("ca.pem")]
        return options + ["--coordinator-token", self.path("agent.token")]

    def environment(self):
        """What clients look at."""
        return {
            "TUTTI_TLS_CA": self.path("ca.pem"),
            "TUTTI_TLS_CERT": self.path("client.pem"),
            "TUTTI_TLS_KEY": self.path("client.key"),
            "TUTTI_TOKEN_FILE": self.path("client.token"),
        }

    def remove(self):
        self.folder.cleanup()
