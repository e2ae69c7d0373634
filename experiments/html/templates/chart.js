"use strict";
// Pointing at a chart tells the nearest point; the buttons of the legend hide and show a line in all charts.
const hidden = new Set();

function nearest(svg, x, y) {
  let best = null, least = Infinity;
  for (const circle of svg.querySelectorAll("circle[data-tip]")) {
    if (hidden.has(circle.parentNode.dataset.line)) continue;
    const distance = Math.hypot(circle.cx.baseVal.value - x, circle.cy.baseVal.value - y);
    if (distance < least) { least = distance; best = circle; }
  }
  return best;
}

for (const figure of document.querySelectorAll("figure")) {
  const svg = figure.querySelector("svg"), box = figure.querySelector(".hover"), mark = svg.querySelector(".mark");
  const leave = () => { box.style.display = "none"; mark.setAttribute("visibility", "hidden"); };
  const point = (event) => {
    const frame = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / frame.width;
    const circle = nearest(svg, (event.clientX - frame.left) * scale, (event.clientY - frame.top) * scale);
    if (!circle) { leave(); return; }
    const x = circle.cx.baseVal.value, y = circle.cy.baseVal.value;
    mark.setAttribute("cx", x); mark.setAttribute("cy", y);
    mark.setAttribute("stroke", circle.parentNode.getAttribute("stroke"));
    mark.setAttribute("visibility", "visible");
    box.textContent = circle.dataset.tip;
    box.style.display = "block";
    const left = x / scale + 14, width = box.offsetWidth;
    box.style.left = Math.max(0, left + width > frame.width ? x / scale - width - 14 : left) + "px";
    const top = frame.top - figure.getBoundingClientRect().top + y / scale;
    box.style.top = Math.max(0, top - box.offsetHeight - 8) + "px";
  };
  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerdown", point);
  svg.addEventListener("pointerleave", leave);
}

for (const button of document.querySelectorAll(".legend button")) {
  button.addEventListener("click", () => {
    const name = button.dataset.line, shown = hidden.has(name);
    if (shown) hidden.delete(name); else hidden.add(name);
    button.setAttribute("aria-pressed", String(shown));
    for (const line of document.querySelectorAll("g[data-line]")) {
      if (line.dataset.line === name) line.style.display = shown ? "" : "none";
    }
  });
}
