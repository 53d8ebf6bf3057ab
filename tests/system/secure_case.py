"""Clusters with TLS for tests: certificates, and programs and channels that use them."""

import os
import subprocess
import tempfile

import grpc

import cluster_case
import support

CERTS = os.path.join(support.SOURCE, "tests", "lib", "rpc", "certs.sh")


class Certificates:
    """A folder of fresh authorities and certificates; see certs.sh for their names."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-certs-")
        subprocess.run(["sh", CERTS, self.folder.name], check=True, close_fds=False)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def put(self, name, data):
        """Replace a file as a whole."""
        with open(self.path(name + ".new"), "wb") as file:
            file.write(data)
        os.rename(self.path(name + ".new"), self.path(name))

    def copy(self, source, target):
        for end in (".pem", ".key"):
            self.put(target + end, self.read(source + end))

    def credentials(self, ca="ca.pem", name=None):
        return grpc.ssl_channel_credentials(
            self.read(ca),
            self.read(name + ".key") if name else None,
            self.read(name + ".pem") if name else None,
        )

    def serving(self, name="server", client_ca="ca.pem"):
        """The options of a server."""
        words = ["--tls-cert", self.path(name + ".pem"), "--tls-key", self.path(name + ".key")]
        return words + (["--tls-client-ca", self.path(client_ca)] if client_ca else [])

    def environment(self, name="dns-agent", ca="ca.pem"):
        """What makes the tutti command use them."""
        return {
            "TUTTI_TLS_CA": self.path(ca),
            "TUTTI_TLS_CERT": self.path(name + ".pem"),
            "TUTTI_TLS_KEY": self.path(name + ".key"),
        }

    def remove(self):
        self.folder.cleanup()


class SecureProgram(support.Program):
    """A program whose channels speak TLS, and show a token when there is one."""

    def __init__(self, name, *options, credentials=None, **more):
        self.credentials = credentials
        super().__init__(name, *options, **more)

    def channel(self, *options, credentials=None):
        return grpc.secure_channel(
            self.address,
            credentials or self.credentials,
            options=[("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
            + list(options),
        )


class SecureAgent(cluster_case.Agent):
    def start(self, *words):
        return SecureProgram("tutti-agent", *words, credentials=self.cluster.credentials)


class SecureCluster(cluster_case.Cluster):
    """Mutual TLS everywhere."""

    agent_class = SecureAgent

    def __init__(self, size, certificates, *agent_options, coordinator_options=(), name="dns-agent"):
        self.certificates = certificates
        self.credentials = certificates.credentials(name=name)
        super().__init__(
            size,
            *certificates.serving(),
            *("--coordinator-ca", certificates.path("ca.pem")),
            *agent_options,
            coordinator_options=tuple(certificates.serving()) + tuple(coordinator_options),
        )

    def make_coordinator(self, *options):
        return SecureProgram("tutti-coordinator", *options, credentials=self.credentials)
