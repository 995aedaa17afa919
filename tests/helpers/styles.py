"""Ways in which a model may write one answer; `right` and `wrong` are filled in."""

STYLES = {
    "bare": "{right}",
    "sentence": "The answer is {right}.",
    "answer line": "Answer: {right}",
    "dot": "{right}.",
    "brackets": "({right})",
    "bold": "**{right}**",
    "boxed": "$\\boxed{{{right}}}$",
    "tag": "<answer>{right}</answer>",
    "prose": "One might think of {wrong} here.\nBut that is not what the image shows, so {wrong} is out.\n\n**Answer:** {right}",
    "thinking": "<think>It may be {wrong}. Answer: {wrong}</think>\n{right}",
}
