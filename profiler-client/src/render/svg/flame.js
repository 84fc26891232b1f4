(function () {
  'use strict';
  const SVG = 'http://www.w3.org/2000/svg';
  const HTML = 'http://www.w3.org/1999/xhtml';
  const CHARACTER = 7;
  const script = document.currentScript;
  const page = script && script.ownerSVGElement ? script.ownerSVGElement : document.documentElement;
  const graph = page.querySelector('#graph');
  const row = Number(graph.dataset.row);

  // Boxes come depth first: the boxes below one follow it, up to its `end`.
  const open = [];
  const boxes = Array.from(graph.querySelectorAll('.f'), (element, index) => {
    const title = element.querySelector('title');
    const lines = title.textContent.split('\n');
    const depth = Math.round(parseFloat(element.getAttribute('y')) / row);
    while (open.length > 0 && open[open.length - 1].depth >= depth) open.pop().end = index;
    const box = {
      element, index, lines, depth, name: lines[0],
      x: parseFloat(element.getAttribute('x')) / 100,
      w: parseFloat(element.getAttribute('width')) / 100,
      parent: open.length > 0 ? open[open.length - 1] : null,
      children: [], end: 0, text: element.querySelector('text'), shown: 1, matched: false,
    };
    if (box.parent) box.parent.children.push(box);
    open.push(box);
    // Our own details replace the browser's tooltip.
    title.textContent = '';
    element.setAttribute('aria-label', lines.join(', '));
    element.setAttribute('tabindex', '-1');
    return box;
  });
  while (open.length > 0) open.pop().end = boxes.length;
  if (boxes.length === 0) return;
  const byElement = new Map(boxes.map((box) => [box.element, box]));

  // Label of a frame: its name without the kind that the details add.
  for (const box of boxes) box.label = box.name.replace(/ \((kernel, inlined|kernel|inlined)\)$/, '');

  let focus = boxes[0];
  const history = [];
  let query = '';

  function fit(box, pixels) {
    const room = Math.floor((pixels - 6) / CHARACTER);
    if (room < 3) {
      if (box.text) box.text.textContent = '';
      return;
    }
    if (!box.text) {
      box.text = document.createElementNS(SVG, 'text');
      box.text.setAttribute('x', '4');
      box.text.setAttribute('y', '12.5');
      box.element.appendChild(box.text);
    }
    const glyphs = Array.from(box.label);
    const cut = glyphs.length <= room ? box.label : glyphs.slice(0, room - 1).join('') + '\u2026';
    if (box.text.textContent !== cut) box.text.textContent = cut;
  }

  function layout() {
    const width = graph.getBoundingClientRect().width;
    toolRow.setAttribute('y', width < 900 ? 10 : Number(legend.getAttribute('y')) - 10);
    const above = new Set();
    for (let box = focus.parent; box; box = box.parent) above.add(box);
    for (const box of boxes) {
      const below = box.index >= focus.index && box.index < focus.end;
      const isAbove = above.has(box);
      const x = isAbove ? 0 : (box.x - focus.x) / focus.w;
      const w = isAbove ? 1 : box.w / focus.w;
      box.shown = below || isAbove ? w : 0;
      if (!(below || isAbove) || w * width < 0.2) {
        box.element.style.display = 'none';
        continue;
      }
      box.element.style.display = '';
      box.element.setAttribute('x', (x * 100).toFixed(5) + '%');
      box.element.setAttribute('width', (Math.min(w, 1) * 100).toFixed(5) + '%');
      box.element.classList.toggle('a', isAbove);
      fit(box, w * width);
    }
    backButton.disabled = history.length === 0;
    resetButton.disabled = focus === boxes[0] && query === '';
    count();
  }

  function zoom(box) {
    if (box === focus) return;
    history.push(focus);
    focus = box;
    hide();
    layout();
  }

  function back() {
    if (history.length === 0) return;
    focus = history.pop();
    hide();
    layout();
  }

  function reset() {
    if (focus !== boxes[0]) history.push(focus);
    focus = boxes[0];
    input.value = '';
    search('');
    hide();
    layout();
  }

  function search(text) {
    query = text;
    let matches = () => false;
    if (text !== '') {
      try {
        const expression = new RegExp(text, 'i');
        matches = (box) => expression.test(box.label);
      } catch (_) {
        const lower = text.toLowerCase();
        matches = (box) => box.label.toLowerCase().includes(lower);
      }
    }
    for (const box of boxes) {
      box.matched = box.parent !== null && matches(box);
      box.element.classList.toggle('m', box.matched);
    }
    resetButton.disabled = focus === boxes[0] && query === '';
    count();
  }

  // The share of what is zoomed to that lies in matching boxes; one within another counts once.
  function count() {
    if (query === '') {
      found.textContent = '';
      return;
    }
    let sum = 0;
    let number = 0;
    for (let index = focus.index; index < focus.end; index++) {
      if (!boxes[index].matched) continue;
      number++;
      let outermost = true;
      for (let box = boxes[index]; box !== focus; box = box.parent) {
        if (box.parent.matched && box.parent.index >= focus.index) {
          outermost = false;
          break;
        }
      }
      if (outermost) sum += boxes[index].w;
    }
    found.textContent = number === 0 ? 'no match' : Math.min(100, 100 * sum / focus.w).toFixed(1) + '% matched';
  }

  function html(name, parent, text) {
    const element = document.createElementNS(HTML, name);
    if (text !== undefined) element.textContent = text;
    parent.appendChild(element);
    return element;
  }

  function foreign(attributes) {
    const element = document.createElementNS(SVG, 'foreignObject');
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    page.appendChild(element);
    return element;
  }

  // Tools, at the right of the legend's row; of the title's, where that is too full.
  const legend = page.querySelector('.legend');
  const toolRow = foreign({ x: '30%', width: '68.75%', height: 40 });
  const bar = html('div', toolRow);
  bar.className = 'bar';
  toolRow.style.pointerEvents = 'none';
  const found = html('span', bar);
  found.setAttribute('aria-live', 'polite');
  const input = html('input', bar);
  input.type = 'search';
  input.placeholder = 'search ( / )';
  input.setAttribute('aria-label', 'search functions, a regular expression');
  const backButton = html('button', bar, 'Back');
  const resetButton = html('button', bar, 'Reset');
  for (const tool of [input, backButton, resetButton]) tool.style.pointerEvents = 'auto';
  input.addEventListener('input', () => search(input.value));
  backButton.addEventListener('click', back);
  resetButton.addEventListener('click', reset);

  // Details.
  const holder = foreign({ x: 0, y: 0, width: 560, height: 1 });
  holder.style.overflow = 'visible';
  holder.style.pointerEvents = 'none';
  const tip = html('div', holder);
  tip.className = 'tip';
  function hide() {
    holder.style.display = 'none';
  }
  function show(box, x, y) {
    tip.textContent = '';
    html('b', tip, box.name);
    for (const line of box.lines.slice(1)) html('div', tip, line);
    if (focus !== boxes[0] && box.index >= focus.index) {
      html('div', tip, (100 * box.w / focus.w).toFixed(1) + '% of what is zoomed to');
    }
    holder.style.display = '';
    const outer = page.getBoundingClientRect();
    const size = tip.getBoundingClientRect();
    const right = Math.min(outer.right, window.innerWidth);
    const bottom = window.innerHeight;
    const left = x + 14 + size.width > right ? Math.max(4, x - 14 - size.width) : x + 14;
    const top = y + 18 + size.height > bottom ? Math.max(4, y - 10 - size.height) : y + 18;
    holder.setAttribute('x', left - outer.left);
    holder.setAttribute('y', top - outer.top);
  }

  function boxOf(event) {
    const element = event.target.closest ? event.target.closest('.f') : null;
    return element ? byElement.get(element) : undefined;
  }
  graph.addEventListener('mousemove', (event) => {
    const box = boxOf(event);
    if (box) show(box, event.clientX, event.clientY);
    else hide();
  });
  graph.addEventListener('mouseleave', hide);
  graph.addEventListener('click', (event) => {
    const box = boxOf(event);
    if (box) zoom(box);
  });
  graph.addEventListener('focusin', (event) => {
    const box = boxOf(event);
    if (!box || !box.element.matches(':focus-visible')) return;
    const place = box.element.getBoundingClientRect();
    show(box, Math.max(0, place.left), place.bottom - 12);
  });

  let current = boxes[0];
  current.element.setAttribute('tabindex', '0');
  function move(box) {
    if (!box || box.shown === 0) return;
    current.element.setAttribute('tabindex', '-1');
    current = box;
    current.element.setAttribute('tabindex', '0');
    current.element.focus();
  }
  function beside(box, step) {
    // The next box of the same row, whoever called it.
    for (let index = box.index + step; index >= 0 && index < boxes.length; index += step) {
      if (boxes[index].depth === box.depth && boxes[index].element.style.display !== 'none') return boxes[index];
    }
    return null;
  }
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === input) {
      if (event.key === 'Escape') {
        input.value = '';
        search('');
        input.blur();
      }
      return;
    }
    const on = boxOf(event);
    const widest = (on || current).children.reduce((best, child) => (!best || child.w > best.w ? child : best), null);
    const actions = {
      '/': () => input.focus(),
      Escape: reset,
      Backspace: back,
      ArrowUp: () => move((on || current).parent),
      ArrowDown: () => move(on || current !== boxes[0] ? widest : boxes[0]),
      ArrowLeft: () => move(beside(on || current, -1)),
      ArrowRight: () => move(beside(on || current, 1)),
      Enter: () => on && zoom(on),
      ' ': () => on && zoom(on),
    };
    if (event.target.closest && event.target.closest('button') && (event.key === 'Enter' || event.key === ' ')) return;
    if (Object.hasOwn(actions, event.key)) {
      event.preventDefault();
      actions[event.key]();
    }
  });

  window.addEventListener('resize', () => {
    hide();
    layout();
  });
  hide();
  layout();
})();
