// Sorts the table of runs by the column whose heading is clicked; figures from the largest on, then the other way.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const heading = button.closest("th");
    const body = heading.closest("table").tBodies[0];
    const column = heading.cellIndex;
    const direction = heading.getAttribute("aria-sort") === "descending" ? "ascending" : "descending";
    for (const other of heading.parentElement.cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", direction);
    const figure = (row) => Number(row.cells[column].dataset.value ?? -Infinity);
    const sign = direction === "descending" ? -1 : 1;
    const rows = [...body.rows].sort((one, other) => {
      const [a, b] = [figure(one), figure(other)];
      return a === b ? 0 : sign * (a < b ? -1 : 1);
    });
    body.append(...rows);
  });
}
