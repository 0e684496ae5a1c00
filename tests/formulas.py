"""Families as their papers write them: edges one by one where there are some, else dense matrices.

Nothing here calls the package. Parallel edges stay apart, so that maxima and means are known.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Graph:
    """E edges from M sources to N targets; a pair has targets of its own, whatever their number."""

    source: Tensor
    target: Tensor
    weight: Tensor | None
    kind: Tensor
    size: tuple[int, int]
    is_pair: bool

    @property
    def ones(self):
        """The weights, or ones."""
        return (
            torch.ones(self.source.shape, dtype=torch.float64)
            if self.weight is None
            else (self.weight.double())
        )

    def transposed(self):
        """Every edge the other way."""
        return replace(self, source=self.target, target=self.source, size=self.size[::-1])


@dataclass(frozen=True)
class Matrices:
    """A (K, M, N): as edges (label, source, target, value), or dense where they are products."""

    count: int
    size: tuple[int, int]
    edges: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
    product: Tensor | None = None

    @property
    def dense(self):
        """(K, M, N)."""
        if self.product is not None:
            return self.product
        label, source, target, value = self.edges
        zeros = value.new_zeros(self.count, *self.size)
        return zeros.index_put((label, source, target), value, accumulate=True)


def _of_edges(source, target, value, size, label=None, count=1):
    label = torch.zeros_like(source) if label is None else label
    return Matrices(count, size, (label, source, target, value))


def _sums(value, nodes, count):
    return torch.zeros(count, dtype=value.dtype).index_add(0, nodes, value)


def _inverse(value, power=1.0):
    safe = torch.where(value > 0, value, 1.0)
    return torch.where(value > 0, safe.pow(-power), 0.0)


def _looped(graph, fill=1.0):
    """With a loop at every node that has none."""
    has = {int(m) for m, n in zip(graph.source, graph.target, strict=True) if m == n}
    bare = torch.tensor([n for n in range(graph.size[0]) if n not in has], dtype=torch.long)
    return replace(
        graph,
        source=torch.cat([graph.source, bare]),
        target=torch.cat([graph.target, bare]),
        weight=torch.cat([graph.ones, torch.full(bare.shape, fill, dtype=torch.float64)]),
    )


def _normalised(graph, norm):
    """The weight of each edge, divided by degrees; a pair has a degree at each end."""
    w, (m, n) = graph.ones, graph.size
    sent, received = _sums(w, graph.source, m), _sums(w, graph.target, n)
    if norm is None:
        return w
    if norm == "source":
        return w * _inverse(sent)[graph.source]
    if norm == "target":
        return w * _inverse(received)[graph.target]
    sent = sent if graph.is_pair or norm == "both" else received
    return _inverse(sent, 0.5)[graph.source] * w * _inverse(received, 0.5)[graph.target]


def identity(graph):
    """I; on a pair, source n is seen by target n."""
    nodes = torch.arange(min(graph.size))
    return _of_edges(nodes, nodes, torch.ones(nodes.shape, dtype=torch.float64), graph.size)


def gcn(graph, norm="sym", add_self_loops=True, improved=False):
    """D^-1/2 (W + I) D^-1/2, or W + I by the degrees of one end."""
    if add_self_loops:
        graph = _looped(graph, 2.0 if improved else 1.0)
    value = _normalised(graph, norm)
    return _of_edges(graph.source, graph.target, value, graph.size)


def relation(graph, num_relations=1, norm="mean"):
    """W_r, or the mean within a relation."""
    kind = graph.kind if num_relations > 1 else torch.zeros_like(graph.kind)
    value = graph.ones
    if norm == "mean":
        key = graph.target * num_relations + kind
        value = value / torch.bincount(key, minlength=1)[key]
    return _of_edges(graph.source, graph.target, value, graph.size, kind, num_relations)


def _step(graph, norm, add_self_loops):
    graph = _looped(graph) if add_self_loops else graph
    value = _normalised(graph, norm)
    return _of_edges(graph.source, graph.target, value, graph.size).dense[0]


def walk(graph, length=2, norm="source", direction="forward", powers=None, add_self_loops=False):
    """T^l for the lengths that are kept, forward or backward or both."""
    kept = range(length + 1) if powers is None else powers
    ways = {
        "forward": [graph],
        "backward": [graph.transposed()],
        "both": [graph, graph.transposed()],
    }
    if max(kept) < 2:  # no products: edges are known
        terms = []
        for way in ways[direction]:
            looped = _looped(way) if add_self_loops else way
            value = _normalised(looped, norm)
            step = _of_edges(looped.source, looped.target, value, graph.size)
            terms += [[identity(graph), step][power] for power in kept]
        return stack(*terms)
    terms = []
    for way in ways[direction]:
        step = _step(way, norm, add_self_loops)
        terms += [torch.linalg.matrix_power(step, power) for power in kept]
    return Matrices(len(terms), graph.size, product=torch.stack(terms))


def chebyshev(graph, num_terms=3, lambda_max="bound", norm="sym"):
    """T_k(2 L / λ − I); the bound is 2, or twice the largest degree of D − W."""
    stay = graph.source != graph.target
    source, target, w = graph.source[stay], graph.target[stay], graph.ones[stay]
    sent = _sums(w, source, graph.size[0])
    if norm == "sym":
        w = _inverse(sent, 0.5)[source] * w * _inverse(sent, 0.5)[target]
    elif norm == "source":
        w = _inverse(sent)[source] * w
    elif norm == "target":
        w = w * _inverse(_sums(w, target, graph.size[0]))[target]
    if lambda_max == "bound":
        lambda_max = 2.0 if norm or not sent.any() else 2 * float(sent.detach().max())
    eye = torch.eye(graph.size[0], dtype=torch.float64)
    adjacency = _of_edges(source, target, w, graph.size).dense[0]
    laplacian = (torch.diag(sent) if norm is None else eye) - adjacency
    scaled = 2 * laplacian / lambda_max - eye
    terms = [eye, scaled]
    while len(terms) < num_terms:
        terms.append(2 * scaled @ terms[-1] - terms[-2])
    return Matrices(num_terms, graph.size, product=torch.stack(terms[:num_terms]))


# Polynomials of degree k in a matrix, each as a sum over powers (Szegő, *Orthogonal Polynomials*).


def _powers(*pairs):
    """Σ c · Π S^n over lists of (c, (S, n), …)."""
    total = 0.0
    for c, *factors in pairs:
        term = c * torch.matrix_power(*factors[0])
        for matrix, power in factors[1:]:
            term = term @ torch.matrix_power(matrix, power)
        total = total + term
    return total


def _choose(n, k):
    """n choose k for any real n."""
    return math.prod((n - i) / (k - i) for i in range(k))


def monomial_of(k, s):
    """S^k."""
    return torch.matrix_power(s, k)


def chebyshev_first_of(k, s):
    """Σ_j (k choose 2j) (S² − I)^j S^(k−2j)."""
    square = s @ s - torch.eye(len(s), dtype=s.dtype)
    terms = range(k // 2 + 1)
    return _powers(*((math.comb(k, 2 * j), (square, j), (s, k - 2 * j)) for j in terms))


def chebyshev_second_of(k, s):
    """Σ_j (k+1 choose 2j+1) (S² − I)^j S^(k−2j)."""
    square = s @ s - torch.eye(len(s), dtype=s.dtype)
    terms = range(k // 2 + 1)
    return _powers(*((math.comb(k + 1, 2 * j + 1), (square, j), (s, k - 2 * j)) for j in terms))


def gegenbauer_of(k, s, lam=1.0):
    """Σ_j (−1)^j λ(λ+1)…(λ+k−j−1) / (j! (k−2j)!) (2S)^(k−2j) (4.7.31)."""
    pairs = []
    for j in range(k // 2 + 1):
        rising = math.prod(lam + i for i in range(k - j))
        c = (-1) ** j * rising / (math.factorial(j) * math.factorial(k - 2 * j))
        pairs.append((c, (2 * s, k - 2 * j)))
    return _powers(*pairs)


def jacobi_of(k, s, a=1.0, b=1.0):
    """Σ_j (k+a choose k−j) (k+b choose j) ((S−I)/2)^j ((S+I)/2)^(k−j) (4.3.2)."""
    eye = torch.eye(len(s), dtype=s.dtype)
    low, high = (s - eye) / 2, (s + eye) / 2
    return _powers(
        *(
            (_choose(k + a, k - j) * _choose(k + b, j), (low, j), (high, k - j))
            for j in range(k + 1)
        )
    )


def legendre_of(k, s):
    """2^−k Σ_j (k choose j)² (S−I)^(k−j) (S+I)^j."""
    eye = torch.eye(len(s), dtype=s.dtype)
    terms = range(k + 1)
    return _powers(*((math.comb(k, j) ** 2 / 2**k, (s - eye, k - j), (s + eye, j)) for j in terms))


def bernstein_of(j, s, count):
    """(n choose j) ((I−S)/2)^(n−j) ((I+S)/2)^j, n + 1 terms; BernNet has S = L − I."""
    eye, n = torch.eye(len(s), dtype=s.dtype), count - 1
    return _powers((math.comb(n, j) / 2**n, (eye - s, n - j), (eye + s, j)))


def chebyshev_nodes_of(j, s, count):
    """Π_{i≠j} (S − t_i I) / (t_j − t_i) of the Chebyshev nodes t (Lagrange)."""
    nodes = [-math.cos((i + 0.5) * math.pi / count) for i in range(count)]
    out = eye = torch.eye(len(s), dtype=s.dtype)
    for i, node in enumerate(nodes):
        if i != j:
            out = out @ (s - node * eye) / (nodes[j] - node)
    return out


def bern_net(laplacian, x, theta):
    """BernNet, term by term: Σ_j θ_j (n choose j) / 2^n (2I − L)^(n−j) L^j X."""
    n, two = len(theta) - 1, 2 * torch.eye(len(laplacian), dtype=x.dtype)
    out = 0
    for j in range(n + 1):
        h = x
        for _ in range(j):
            h = laplacian @ h
        for _ in range(n - j):
            h = (two - laplacian) @ h
        out = out + theta[j] * math.comb(n, j) / 2**n * h
    return out


def cheb_net_2(laplacian, x, gamma):
    """ChebNetII: Σ_k w_k T_k(L − I) X, with w_k = 2/(K+1) Σ_j γ_j T_k(t_j), halved for k = 0."""
    count = len(gamma)
    shifted = laplacian - torch.eye(len(laplacian), dtype=x.dtype)
    nodes = [math.cos((count - 1 - j + 0.5) * math.pi / count) for j in range(count)]
    out = 0
    for k in range(count):
        w = sum(gamma[j] * math.cos(k * math.acos(nodes[j])) for j in range(count)) * 2 / count
        out = out + (w / 2 if k == 0 else w) * chebyshev_first_of(k, shifted) @ x
    return out


def jacobi_conv(adjacency, h, c, a, b):
    """JacobiConv's filters: Σ_k c_kq P_k^(a,b)(Â) h_q, of its channels H (N, Q)."""
    terms = [jacobi_of(k, adjacency, a, b) for k in range(len(c))]
    return torch.einsum("kq,kmn,mq->nq", c, torch.stack(terms), h)


def favard_gnn(matrix, h, c, center, root):
    """FavardGNN: Σ_k c_kq h_kq, √β_k h_k = S h_{k−1} − η_{k−1} h_{k−1} − √β_{k−1} h_{k−2}."""
    terms = [h / root[0]]
    for k in range(1, len(c)):
        ahead = matrix @ terms[-1] - center[k - 1] * terms[-1]
        if k > 1:
            ahead = ahead - root[k - 1] * terms[-2]
        terms.append(ahead / root[k])
    return sum(number * term for number, term in zip(c, terms, strict=True))


def opt_basis_gnn(matrix, h, c):
    """OptBasisGNN: Σ_k c_kq h_kq, h_q, S h_q, S² h_q, … made orthogonal and as long as h_q."""
    columns = []
    for q in range(h.size(1)):
        krylov = torch.stack([torch.matrix_power(matrix, k) @ h[:, q] for k in range(len(c))], 1)
        basis, triangle = torch.linalg.qr(krylov)
        columns.append(basis @ (triangle.diagonal().sign() * c[:, q]) * h[:, q].norm())
    return torch.stack(columns, 1)


# Of each family its polynomials, and numbers for their options.
POLYNOMIALS = {
    "Bernstein": (bernstein_of, {}),
    "ChebyshevNodes": (chebyshev_nodes_of, {}),
    "Monomial": (monomial_of, {}),
    "ChebyshevFirst": (chebyshev_first_of, {}),
    "ChebyshevSecond": (chebyshev_second_of, {}),
    "Legendre": (legendre_of, {}),
    "Gegenbauer": (gegenbauer_of, {"lam": (-0.3, 0.7, 2.0)}),
    "Jacobi": (jacobi_of, {"a": (-0.5, 0.0, 1.5), "b": (-0.7, 0.0, 1.0)}),
}


def polynomials(graph, p, num_terms=3, of="adjacency", norm="sym", add_self_loops=False, **options):
    """p_0(S), p_1(S), … of S = Â, or of L − I = −Â; powers are those of L = I − Â."""
    s = _step(graph, norm, add_self_loops)
    if of == "laplacian":
        s = (torch.eye(len(s), dtype=s.dtype) if p is monomial_of else 0.0) - s
    if p in (bernstein_of, chebyshev_nodes_of):
        options["count"] = num_terms
    terms = [p(k, s, **options) for k in range(num_terms)]
    return Matrices(num_terms, graph.size, product=torch.stack(terms))


def diffusion(graph, kind="ppr", alpha=0.15, t=5.0, length=10, norm="sym", add_self_loops=True):
    """Σ θ_k T^k, the weights of longer walks going to the last power."""
    if kind == "ppr":
        theta = [alpha * (1 - alpha) ** k for k in range(length)]
    else:
        theta = [math.exp(-t) * t**k / math.factorial(k) for k in range(length)]
    theta.append(1 - sum(theta))
    step = _step(graph, norm, add_self_loops)
    total = sum(c * torch.linalg.matrix_power(step, k) for k, c in enumerate(theta))
    return Matrices(1, graph.size, product=total[None])


def directed(graph, part):
    """A family on the edges, then on the reversed edges."""
    return stack(part(graph), part(graph.transposed()))


def stack(*parts):
    """Side by side."""
    count = sum(part.count for part in parts)
    if any(part.edges is None for part in parts):
        return Matrices(count, parts[0].size, product=torch.cat([part.dense for part in parts]))
    first, rows = 0, []
    for part in parts:
        label, *rest = part.edges
        rows.append((label + first, *rest))
        first += part.count
    edges = tuple(torch.cat(column) for column in zip(*rows, strict=True))
    return Matrices(count, parts[0].size, edges)


def compose(first, second):
    """A_i B_j, with j running faster."""
    product = torch.einsum("ial,jlb->ijab", first.dense, second.dense).flatten(0, 1)
    return Matrices(first.count * second.count, tuple(product.shape[1:]), product=product)


def mean(part):
    """Divided by the number of edges that share target and label."""
    label, source, target, value = part.edges
    key = target * part.count + label
    counts = torch.bincount(key, minlength=1)[key]
    return Matrices(part.count, part.size, (label, source, target, value / counts))


def convolution(matrices, x, theta, aggr="sum", label_aggr="sum"):
    """Y (N, *batch, Q): inputs reduced within labels, times Θ_k (K, P, Q), then over labels."""
    if matrices.edges is None or aggr == label_aggr == "sum":
        assert aggr == "sum", "products have no edges to compare or count"
        out = torch.einsum("kmn,m...p,kpq->n...q", matrices.dense, x, theta)
        return out / {"sum": 1, "mean": matrices.count}[label_aggr]
    label, source, target, value = matrices.edges
    messages = value.view(-1, *(1,) * (x.dim() - 1)) * x[source]
    rows = []
    for n in range(matrices.size[1]):
        by_label = []
        for k in range(matrices.count):
            mine = messages[(target == n) & (label == k)]
            if len(mine):
                within = {"sum": mine.sum, "mean": mine.mean, "max": mine.amax, "min": mine.amin}
                by_label.append(within[aggr](0) @ theta[k])
        if not by_label:
            rows.append(x.new_zeros(*x.shape[1:-1], theta.size(2)))
            continue
        every = torch.stack(by_label)
        if label_aggr in ("max", "min"):
            rows.append(getattr(every, f"a{label_aggr}")(0))
        else:  # a label without edges counts as zero
            rows.append(every.sum(0) / (matrices.count if label_aggr == "mean" else 1))
    return torch.stack(rows) if rows else x.new_zeros(0, *x.shape[1:-1], theta.size(2))
