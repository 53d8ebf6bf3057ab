"""A TCP relay between one agent and the coordinator: it forwards, cuts, or swallows."""

import selectors
import socket
import struct
import threading


class Relay:
    """One thread; `target` is "host:port". The commands may come from any thread."""

    def __init__(self, target):
        self.target = target.rsplit(":", 1)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.lock = threading.Lock()
        self.pairs = []
        self.open = True
        self.silent = False
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def cut(self):
        """Every connection is reset; new ones are taken again at once."""
        with self.lock:
            pairs, self.pairs = self.pairs, []
        for one in pairs:
            for end in one:
                try:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                except OSError:
                    pass  # it is closed already
                self._shut(end)

    def silence(self, silent):
        """While it is silent nothing passes, and nobody is told."""
        self.silent = silent

    def close(self):
        self.open = False
        self._shut(self.listener)
        self.cut()

    def _shut(self, end):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        end.close()

    def _accept(self):
        while self.open:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection((self.target[0], int(self.target[1])), timeout=5)
            except OSError:
                if self.open:
                    try:
                        near.close()
                    except (OSError, UnboundLocalError):
                        pass
                continue
            far.settimeout(None)
            with self.lock:
                self.pairs.append((near, far))
            threading.Thread(target=self._pump, args=(near, far), daemon=True).start()

    def _pump(self, near, far):
        selector = selectors.DefaultSelector()
        try:
            selector.register(near, selectors.EVENT_READ, far)
            selector.register(far, selectors.EVENT_READ, near)
            while self.open:
                for key, _ in selector.select(0.05 if self.silent else 0.5):
                    if self.silent:
                        break
                    data = key.fileobj.recv(65536)
                    if not data:
                        return
                    key.data.sendall(data)
        except (OSError, ValueError):
            pass
        finally:
            selector.close()
            for end in (near, far):
                self._shut(end)


if __name__ == "__main__":  # relay.py TARGET: prints its address; SIGSTOP it, and nothing passes
    import sys
    print(Relay(sys.argv[1]).address, flush=True)
    threading.Event().wait()
