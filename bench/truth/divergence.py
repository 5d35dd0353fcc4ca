"""How far next-token distributions are from others, of logits that are too many to hold at once.
Needs torch.
"""
import torch


def divergence(pairs):
    """pairs: (logits of the truth, of the other), [rows][vocab] each, piece by piece. KL(truth ||
    other) in nats, and how often the best token is the same.
    """
    kl, same = [], 0
    for logits in pairs:
        p, q = (torch.log_softmax(rows.double(), -1) for rows in logits)
        kl.append((p.exp() * (p - q)).sum(-1).clamp(min=0))
        same += int((p.argmax(-1) == q.argmax(-1)).sum())
    kl = torch.cat(kl)
    return {
        "positions": len(kl), "mean": kl.mean().item(), "p99": kl.quantile(0.99).item(),
        "worst": kl.max().item(), "worst_at": int(kl.argmax()), "top1": same / len(kl)
    }
