// Formulas of a page, drawn by the bundled KaTeX: nothing is fetched, so pages read from a folder have them too.
for (const place of document.querySelectorAll(".arithmatex")) {
  const text = place.textContent.trim();
  katex.render(text.slice(2, -2), place, {
    displayMode: text.startsWith("\\["), throwOnError: true, trust: false, output: "htmlAndMathml",
  });
}
