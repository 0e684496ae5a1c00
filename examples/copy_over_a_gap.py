"""A causal sequence task that only attention over a gap can solve.

python examples/copy_over_a_gap.py                # about a minute on two cores
python examples/copy_over_a_gap.py --window 16    # the same with a window that is too short

A word of 16 letters, a silence of 24 to 48 steps, a mark, and then the word again, letter by
letter: what comes next lies 40 to 64 steps back, and how far differs from word to word. Two
layers of causal attention learn it, 99 % of the letters and more; a window that does not reach
over the silence cannot do better than chance.
"""

import argparse

import torch
import torch.nn.functional as F

from pyg_outerconv.attention import LearnedPositions
from pyg_outerconv.basis.multi_head_edges import item
from pyg_outerconv.nn.attention.blocks import EncoderBlock

LETTERS, SILENCE, MARK = 12, 12, 13
WORD, GAP = 16, (24, 48)
LONGEST = 2 * WORD + GAP[1]


class Copier(torch.nn.Module):
    """Two blocks of causal attention between an embedding of letters and scores of letters."""

    def __init__(self, window=None, width=64, heads=4):
        super().__init__()
        support = "causal" if window is None else f"slidingwindow(window={window}, causal=True)"
        self.embedding = torch.nn.Embedding(LETTERS + 2, width)
        self.positions = LearnedPositions(LONGEST, width)
        self.blocks = torch.nn.ModuleList(
            EncoderBlock(width, heads, 2 * width, support=support, dropout=0.0, norm_first=True)
            for _ in range(2)
        )
        self.letters = torch.nn.Linear(width, LETTERS)

    def forward(self, sequence):
        """Scores (B, length, LETTERS) of the next letter, for letters (B, length)."""
        x = self.positions(self.embedding(sequence))
        for block in self.blocks:
            x = block(x)
        return self.letters(x)


def draw(count, generator, gap=None):
    """``count`` sequences with one gap, and the words that they end with."""
    word = torch.randint(LETTERS, (count, WORD), generator=generator)
    if gap is None:
        gap = int(torch.randint(GAP[0], GAP[1] + 1, (1,), generator=generator))
    silence = torch.full((count, gap), SILENCE)
    mark = torch.full((count, 1), MARK)
    return torch.cat([word, silence, mark, word[:, :-1]], dim=1), word


def main(arguments=None):
    """Train, and print the share of letters that are copied."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--window", type=int, help="steps back that a layer sees; all if not given")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", help="a file for a picture of the learned basis")
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed)
    net = Copier(options.window)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=options.steps)
    for step in range(options.steps):
        sequence, word = draw(32, generator)
        scores = net(sequence)[:, -WORD:]
        loss = F.cross_entropy(scores.flatten(0, 1), word.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if (step + 1) % 250 == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
    accuracy = evaluate(net, generator)
    print(f"{100 * accuracy:.1f} % of the letters are copied over gaps of {GAP[0]} to {GAP[1]}")
    if options.picture:
        draw_basis(net, generator, options.picture)
    return accuracy


@torch.no_grad()
def evaluate(net, generator):
    """The share of letters that come first, over every gap."""
    net.eval()
    shares = []
    for gap in range(GAP[0], GAP[1] + 1, 4):
        sequence, word = draw(64, generator, gap)
        shares.append((net(sequence)[:, -WORD:].argmax(-1) == word).float().mean())
    return float(torch.stack(shares).mean())


@torch.no_grad()
def draw_basis(net, generator, path):
    """The learned basis of the last layer for one word: the diagonal is the copying."""
    sequence, _ = draw(1, generator, GAP[0])
    x = net.positions(net.embedding(sequence))
    for block in net.blocks[:-1]:
        x = block(x)
    block = net.blocks[-1]
    x = block.around_attention.norm(x)
    _, basis = block.attention(x, return_attention_weights=True)
    item(basis, 0).plot("matrices", path, titles=[f"head {h}" for h in range(basis.num_bases)])


if __name__ == "__main__":
    main()
