"""The privacy ledger: events, accountants, budgets, cards. NumPy/SciPy, float64; dp_accounting only where asked for.

events           what plans release; array_uplink, antennas: to several antennas; eavesdropper: to a second receiver
uplink_checks    uplinks held against what they say of themselves
budget, ledger   a cap; what was released so far under it; sums: of rounds too many to keep; export: as bytes
spend            releases beside the air; feedback: a noisy accuracy is one
accountants      the table of them: zcdp, gaussian in closed form; by_rdp, by_pld
rdp, moments     Renyi costs of sampled Gaussians; moment_bounds: of long runs, from above
pld              privacy loss distributions; replacement: replacing a unit under sampling
participation    what private coins may save
calibrate        the least noise for a target; curve: eps along a run
retire, filters  clients that stop at their own cap, in a plan made ahead and inside a closed loop
attack           what an eps means; audit, scores, one_run: what an attack has shown
card, card_text  the privacy card, and its words
"""

from otafl.privacy.accountants import ACCOUNTANTS, Accountant, account
from otafl.privacy.attack import Attack, attack_success
from otafl.privacy.budget import Budget
from otafl.privacy.calibrate import calibrate
from otafl.privacy.card import OUTSIDE, PrivacyCard, make_card
from otafl.privacy.curve import eps_curve
from otafl.privacy.events import (
    check_realised,
    check_release,
    events,
    inverse_square,
    noise_multiplier,
    release,
    total_noise_var,
)
from otafl.privacy.feedback import noisy_accuracy
from otafl.privacy.gaussian import budget_rho as gaussian_budget
from otafl.privacy.gaussian import delta as gaussian_delta
from otafl.privacy.gaussian import eps_from_rho as gaussian_eps
from otafl.privacy.ledger import Ledger
from otafl.privacy.moments import LogMoment, sampled_gaussian_log_moment
from otafl.privacy.participation import ACCOUNTINGS, hidden_replace_rdp, run_rdp, visible_eps, visible_rdp
from otafl.privacy.pld import pld_eps
from otafl.privacy.rdp import ORDERS, rdp_budget, rdp_to_eps, sampled_gaussian_rdp, total_rdp
from otafl.privacy.spend import Release, Spend
from otafl.privacy.zcdp import classic_budget, classic_eps, horizon, optimal_budget, optimal_eps

__all__ = [
    "ACCOUNTANTS", "ACCOUNTINGS", "ORDERS", "OUTSIDE", "Accountant", "Attack", "Budget", "Ledger", "LogMoment",
    "PrivacyCard", "Release", "Spend", "account", "attack_success", "calibrate", "check_realised", "check_release",
    "classic_budget", "classic_eps", "eps_curve", "events", "gaussian_budget", "gaussian_delta", "gaussian_eps",
    "hidden_replace_rdp", "horizon", "inverse_square", "make_card", "noise_multiplier", "noisy_accuracy",
    "optimal_budget", "optimal_eps", "pld_eps", "rdp_budget", "rdp_to_eps", "release", "run_rdp",
    "sampled_gaussian_log_moment", "sampled_gaussian_rdp", "total_noise_var", "total_rdp", "visible_eps", "visible_rdp",
]  # fmt: skip
