// Formulas, drawn by the bundled KaTeX: nothing is fetched, so pages read from a folder have them too.
for (const place of document.querySelectorAll(".arithmatex")) {
  const text = place.textContent.trim();
  katex.render(text.slice(2, -2), place, {
    displayMode: text.startsWith("\\["), throwOnError: true, trust: false, output: "htmlAndMathml",
  });
}
// "0.960 ± 0.003" is one number: it stays on one line.
for (const cell of document.querySelectorAll(".md-typeset td")) {
  if (/^[-−+–∞≤<>~]?\s?\d[\d.,e±×%\s−+-]{0,18}$/.test(cell.innerText.trim())) cell.classList.add("number");
}
// A long name in a table may break where it has a joint, and nowhere else.
for (const name of document.querySelectorAll(".md-typeset td code, .md-typeset th")) {
  if (name.innerText.length < (name.tagName === "TH" ? 12 : 17) || name.children.length) continue;
  name.innerHTML = name.innerHTML.replace(/[._/,=](?=\w{3})/g, "$&<wbr>");
}
// What scrolls can be reached by keyboard, and every navigation has a name of its own.
for (const place of document.querySelectorAll(".md-typeset pre, .md-typeset__scrollwrap, .katex-display")) {
  place.tabIndex = 0;
}
for (const [n, part] of document.querySelectorAll(".md-nav .md-nav").entries()) {
  const label = document.getElementById(part.getAttribute("aria-labelledby"))?.innerText ?? part.ariaLabel ?? "";
  part.removeAttribute("aria-labelledby");
  part.ariaLabel = `${label} (${n + 1})`;
}
new MutationObserver(() => {  // the theme adds its copy buttons later
  for (const part of document.querySelectorAll("nav.md-code__nav:not([role])")) part.setAttribute("role", "none");
}).observe(document.body, { childList: true, subtree: true });
