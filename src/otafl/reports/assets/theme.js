// Dark where the reader prefers it; in the head, so that a page never flashes in the other.
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => { document.documentElement.dataset.theme = prefersDark.matches ? "dark" : "light"; };
prefersDark.addEventListener("change", follow);
follow();
