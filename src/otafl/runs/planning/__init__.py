"""Schemes planned and charged before anything is trained: what `otafl plan` shows and every run begins with.

planned          one scheme for all seeds; open_loop: its plans, made ahead, charged and cut
table, figures   `otafl plan FILE`; what one plan comes to; details: `otafl plan SYSTEM FILE`
facts, places    what planning needs of a task; a site as a design rule meets it
energy, afford   limits of the radios; a first round that costs too much
left             of the target: prior_spend, after an earlier run; channel_risk, by what the channel may do
retirement       clients that stop at their own cap
steps            the step size by rule
"""
