// Formulas, drawn by the bundled KaTeX: nothing is fetched, so pages read from a folder have them too.
for (const place of document.querySelectorAll(".arithmatex")) {
  const text = place.textContent.trim();
  katex.render(text.slice(2, -2), place, {
    displayMode: text.startsWith("\\["), throwOnError: true, trust: false, output: "htmlAndMathml",
  });
}
// What scrolls can be reached by keyboard, and every navigation has a name of its own.
for (const place of document.querySelectorAll(".md-typeset pre, .md-typeset__scrollwrap")) place.tabIndex = 0;
for (const [n, part] of document.querySelectorAll(".md-nav .md-nav").entries()) {
  const label = document.getElementById(part.getAttribute("aria-labelledby"))?.innerText ?? part.ariaLabel ?? "";
  part.removeAttribute("aria-labelledby");
  part.ariaLabel = `${label} (${n + 1})`;
}
new MutationObserver(() => {  // the theme adds its copy buttons later
  for (const part of document.querySelectorAll("nav.md-code__nav:not([role])")) part.setAttribute("role", "none");
}).observe(document.body, { childList: true, subtree: true });
