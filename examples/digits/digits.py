"""What the workers in Python compute: the digits and the gradient, as digits.c has them."""

import gzip

import numpy as np

PIXELS, CLASSES, SHARDS, BATCH, EPOCHS, RATE = 64, 10, 4, 32, 40, np.float32(0.5)


def load(path):
    """All rows, shuffled as train.c shuffles them."""
    rows = np.array([[int(word) for word in line.split(",")] for line in gzip.open(path, "rt")])
    state = 1
    for i in range(len(rows) - 1, 0, -1):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        k = (state >> 8) % (i + 1)
        rows[[i, k]] = rows[[k, i]]
    pixels = np.ones((len(rows), PIXELS + 1), np.float32)
    pixels[:, :PIXELS] = rows[:, :PIXELS] / 16
    return pixels, rows[:, PIXELS]


def gradient(pixels, labels, weights):
    scores = pixels @ weights.T
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    scores /= scores.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(scores[rows, labels] + 1e-12).mean()
    scores[rows, labels] -= 1
    return scores.T @ pixels / np.float32(BATCH), loss


class Shard:
    """The part of one rank, in batches, and what all are tried on."""

    def __init__(self, path, rank):
        self.pixels, self.labels = load(path)
        self.held_out = len(self.labels) // 5
        length = (len(self.labels) - self.held_out) // SHARDS
        self.first = self.held_out + rank * length
        self.steps = length // BATCH

    def gradient(self, step, weights):
        rows = slice(self.first + step * BATCH, self.first + (step + 1) * BATCH)
        return gradient(self.pixels[rows], self.labels[rows], weights)

    def accuracy(self, weights):
        found = (self.pixels[: self.held_out] @ weights.T).argmax(axis=1) == self.labels[: self.held_out]
        return found.mean()


def train(shard, average, tell):
    """The weights, and the accuracy. average(gradient and loss) over all ranks; tell(epoch, loss, accuracy)."""
    weights = np.zeros((CLASSES, PIXELS + 1), np.float32)
    numbers = np.empty(weights.size + 1, np.float32)
    for epoch in range(1, EPOCHS + 1):
        losses = []
        for step in range(shard.steps):
            own, loss = shard.gradient(step, weights)
            numbers[:-1], numbers[-1] = own.ravel(), loss
            averaged = average(numbers)
            weights = weights - RATE * averaged[:-1].reshape(weights.shape)
            losses.append(averaged[-1])
        accuracy = shard.accuracy(weights)
        tell(epoch, np.mean(losses), accuracy)
    return weights, accuracy
