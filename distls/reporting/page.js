"use strict";
(() => {
  // -- plots ---------------------------------------------------------------------------------------------
  const INKS = {
    light: { text: "#58626e", line: "#c3c9d1", grid: "#e6e9ed" },
    dark: { text: "#9ba6b3", line: "#4a5461", grid: "#2d343e" },
  };
  const dark = matchMedia("(prefers-color-scheme: dark)");

  // Bokeh draws on canvases, which know nothing of the page's colours
  const paint = (ink) => {
    for (const doc of window.Bokeh.documents) {
      for (const model of doc._all_models.values()) {
        if (model.type.endsWith("Axis")) {
          model.axis_label_text_color = ink.text;
          model.major_label_text_color = ink.text;
          model.axis_line_color = ink.line;
          model.major_tick_line_color = ink.line;
        } else if (model.type === "Grid") {
          model.grid_line_color = ink.grid;
        }
      }
    }
  };
  const repaint = () => paint(dark.matches ? INKS.dark : INKS.light);

  const draw = async () => {
    const plots = JSON.parse(document.getElementById("plots").textContent);
    for (const { name, item } of plots) await window.Bokeh.embed.embed_item(item, name);
    if (plots.length) {
      repaint();
      dark.addEventListener("change", repaint);
      window.addEventListener("beforeprint", () => paint(INKS.light));
      window.addEventListener("afterprint", repaint);
    }
    document.documentElement.dataset.drawn = String(plots.length);
  };

  // -- tables --------------------------------------------------------------------------------------------
  const keyOf = (row, column) => {
    const cell = row.cells[column];
    const number = cell.dataset.v === undefined ? NaN : Number(cell.dataset.v);
    return Number.isNaN(number) ? cell.textContent : number;
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return a.localeCompare(b, undefined, { numeric: true });
  };
  const sortBy = (heading) => {
    const table = heading.closest("table");
    const column = heading.cellIndex;
    const falls = heading.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", falls ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => (falls ? -1 : 1) * compare(keyOf(a, column), keyOf(b, column)));
    table.tBodies[0].append(...rows);
  };
  for (const button of document.querySelectorAll("button.sort")) {
    button.addEventListener("click", () => sortBy(button.closest("th")));
  }
  draw();
})();
