// Elements of the page.

/**
 * Makes an element. A property that is a function listens to that event.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} name
 * @param {Record<string, string | number | boolean | null | ((event: any) => void)>} [attributes]
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === 'function') made.addEventListener(key, value);
    else if (value === true) made.setAttribute(key, '');
    else if (value !== false && value !== null) made.setAttribute(key, String(value));
  }
  made.append(...children);
  return made;
}

/**
 * The element with this id, which index.html has.
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`index.html has no #${id}`);
  return found;
}

/**
 * Sets a text only where it changes: a screen reader and the layout notice each write.
 * @param {Node} node
 * @param {string} text
 */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * A list to choose from, with its label.
 * @param {string} label
 * @param {[value: string, text: string][]} choices
 * @param {string} value
 * @param {(value: string) => void} chosen
 * @returns {HTMLLabelElement}
 */
export function choice(label, choices, value, chosen) {
  const list = element('select', { change: () => chosen(list.value) });
  for (const [key, text] of choices) list.append(element('option', { value: key }, text));
  list.value = value;
  return element('label', {}, `${label} `, list);
}

/**
 * A list of times to choose from, s; the time of the settings is in it.
 * @param {string} label
 * @param {[value: string, text: string][]} choices
 * @param {{window: number | null}} settings
 * @param {number} usual
 * @param {() => void} changed
 * @returns {HTMLLabelElement}
 */
export function windowChoice(label, choices, settings, usual, changed) {
  const value = String(settings.window ?? usual);
  const all = choices.some(([known]) => known === value) ? choices : [...choices, /** @type {[string, string]} */ ([value, `${value} s`])];
  return choice(label, all, value, (chosen) => {
    settings.window = Number(chosen);
    changed();
  });
}

/**
 * Zooms a view by `+`, `-` and `0`. Returns false for another key.
 * @param {KeyboardEvent} event
 * @param {{zoom: (factor: number) => void, show: (part: null) => void}} view
 * @returns {boolean}
 */
export function zoomByKey(event, view) {
  if (event.key === '+' || event.key === '=') view.zoom(0.5);
  else if (event.key === '-') view.zoom(2);
  else if (event.key === '0') view.show(null);
  else return false;
  return true;
}

/**
 * The height of a plot, px: of a panel that fills the window most of it.
 * @param {HTMLElement} box
 * @param {number} usual
 */
export function heightOf(box, usual) {
  return box.closest('.whole') ? Math.max(usual, innerHeight - 330) : usual;
}

/**
 * A switch, with its label.
 * @param {string} label
 * @param {boolean} on
 * @param {(on: boolean) => void} changed
 * @returns {HTMLLabelElement}
 */
export function flip(label, on, changed) {
  const box = element('input', { type: 'checkbox', change: () => changed(box.checked) });
  box.checked = on;
  return element('label', {}, box, ` ${label}`);
}

/**
 * A table whose rows are kept from one `show` to the next, so that the focus stays where it is.
 */
export class Table {
  /**
   * @param {string} caption for screen readers
   * @param {[title: string, kind: '' | 'number' | 'text'][]} columns the first is the head of the row
   * @param {number} [most] rows that are shown
   */
  constructor(caption, columns, most = 100) {
    this.columns = columns;
    this.most = most;
    /** @type {Map<string, HTMLTableRowElement>} */
    this.rows = new Map();
    // Roles are explicit: on a narrow screen rows are shown as cards, and browsers then forget what they are.
    const head = element('tr', { role: 'row' });
    for (const [title, kind] of columns) {
      head.append(element('th', { scope: 'col', role: 'columnheader', class: kind }, title));
    }
    this.body = element('tbody', { role: 'rowgroup' });
    this.note = element('p', { class: 'muted', hidden: true });
    const table = element(
      'table',
      { role: 'table' },
      element('caption', { class: 'unseen' }, caption),
      element('thead', { role: 'rowgroup' }, head),
      this.body,
    );
    this.element = element('div', { class: 'table' }, table, this.note);
  }

  /** The row of a key, or what one can press in it. @param {string | null} key @returns {HTMLElement | null} */
  row(key) {
    const row = key === null ? undefined : this.rows.get(key);
    return row?.querySelector('button') ?? row ?? null;
  }

  /**
   * @param {{key: string, cells: (string | Node)[], bad?: boolean[]}[]} rows a node is put in once, when the row is new
   * @param {number} [all] how many there are, where these are not all
   */
  show(rows, all = rows.length) {
    const shown = rows.slice(0, this.most);
    const keys = new Set(shown.map((row) => row.key));
    for (const [key, row] of this.rows) {
      if (keys.has(key)) continue;
      row.remove();
      this.rows.delete(key);
    }
    let before = this.body.firstElementChild;
    for (const row of shown) {
      let made = this.rows.get(row.key);
      if (!made) {
        made = element('tr', { role: 'row' });
        for (const [i, [title, kind]] of this.columns.entries()) {
          const cell = i === 0 ? element('th', { scope: 'row', role: 'rowheader' }) : element('td', { role: 'cell' });
          cell.className = kind;
          cell.dataset.title = title;
          made.append(cell);
        }
        this.rows.set(row.key, made);
      }
      if (made !== before) this.body.insertBefore(made, before);
      else before = before.nextElementSibling;
      for (const [i, value] of row.cells.entries()) {
        const cell = made.children[i];
        if (typeof value !== 'string') {
          if (cell.firstChild !== value) cell.replaceChildren(value);
          continue;
        }
        const bad = row.bad?.[i] ?? false;
        setText(cell, bad ? `▲ ${value}` : value);
        cell.classList.toggle('bad', bad);
      }
    }
    this.note.hidden = all <= shown.length;
    setText(this.note, `${shown.length} of ${all} are shown.`);
  }
}
