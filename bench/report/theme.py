"""How a report's page looks: on screens wide and narrow, light and dark, and on paper."""

from bench.report.svg import GROUNDS, INKS

_GOOD = ("#0a6e4f", "#4cc79b")
_BAD = ("#b3261e", "#ff9a8d")
_SHADE = ("#1f232840", "#e6e9ed3a")
"""At an edge behind which there is more."""


def _variables(dark: bool) -> str:
    values = {"ground": GROUNDS[dark], "good": _GOOD[dark], "bad": _BAD[dark], "shade": _SHADE[dark]}
    values |= {name: pair[dark] for name, pair in INKS.items()}
    return ":root{" + ";".join(f"--{name}:{value}" for name, value in values.items()) + "}"


STYLE = (
    _variables(False)
    + f"@media screen and (prefers-color-scheme:dark){{{_variables(True)}}}"
    + """
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);font:16px/1.55 system-ui,-apple-system,'Segoe UI',sans-serif}
main{max-width:860px;margin:0 auto;padding:32px 20px 64px}
h1{font-size:28px;line-height:1.2;margin:0 0 12px;overflow-wrap:anywhere}
h2{font-size:20px;line-height:1.3;margin:44px 0 8px;padding-top:14px;border-top:1px solid var(--rule)}
h2{overflow-wrap:anywhere}
p{margin:8px 0;max-width:72ch;overflow-wrap:anywhere}
a{color:inherit}
code{font:.9em ui-monospace,SFMono-Regular,Menlo,monospace;overflow-wrap:anywhere}
dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:16px 0 0;font-size:14px}
dt{color:var(--soft)}
dd{margin:0;overflow-wrap:anywhere}
nav{margin:20px 0 0;font-size:14px}
nav ol{margin:0;padding-left:1.6em;columns:2 18em}
.wide{overflow-x:auto;background:
linear-gradient(to right,var(--ground) 50%,transparent) left/48px 100% no-repeat local,
linear-gradient(to left,var(--ground) 50%,transparent) right/48px 100% no-repeat local,
linear-gradient(to right,var(--shade),transparent) left/20px 100% no-repeat scroll,
linear-gradient(to left,var(--shade),transparent) right/20px 100% no-repeat scroll}
.wide .bench-plot .ground{fill-opacity:0}
.wide:focus-visible{outline:2px solid var(--soft);outline-offset:2px}
figure{margin:14px 0}
figure svg{display:block;width:100%;min-width:560px;height:auto}
figcaption,caption{color:var(--soft);font-size:14px;text-align:left;padding:6px 0;max-width:80ch}
table{border-collapse:collapse;margin:16px 0;font-size:14px;min-width:50%}
th,td{padding:6px 18px 6px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--rule)}
th{color:var(--soft);font-weight:600}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td:not(.number){min-width:6em}
.met{color:var(--good)}
.missed{color:var(--bad);font-weight:700}
@media (max-width:600px){
.wide{margin:0 -20px;padding:0 20px}
figure .wide{padding:0}
}
@media print{
@page{margin:16mm}
body{font-size:11pt}
main{max-width:none;padding:0}
.wide{overflow:visible;background:none}
figure svg{min-width:0}
figure,tr{break-inside:avoid}
h2{break-after:avoid}
thead{display:table-header-group}
}
"""
)
