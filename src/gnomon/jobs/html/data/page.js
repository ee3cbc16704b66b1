"use strict";
// Shows the operators of the documents in a page of gnomon, and their graph. Texts become text nodes only.
(() => {
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  root.dataset.errors = "0";
  for (const kind of ["error", "unhandledrejection", "securitypolicyviolation"]) {
    addEventListener(kind, () => { root.dataset.errors = String(Number(root.dataset.errors) + 1); }, true);
  }

  // Characters that control a terminal or reorder text are shown by their numbers.
  const STEERING = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
  const clean = (text) =>
    String(text).replace(STEERING, (one) => "\\u" + one.charCodeAt(0).toString(16).padStart(4, "0"));
  const shorten = (text, most) => {
    const told = clean(text);
    const head = Math.floor((most - 2) / 2);
    return told.length <= most ? told : told.slice(0, head) + ".." + told.slice(head + 2 - most);
  };
  const make = (tag, settings = {}, ...inside) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(settings)) made.setAttribute(name, value);
    made.append(...inside.map((one) => (one instanceof Node ? one : clean(one))));
    return made;
  };
  const digits = (value) => {
    if (!Number.isFinite(value)) return "-";
    if (!value) return "0";
    const places = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(Number(value.toPrecision(3))))));
    return Number(value.toPrecision(3)).toFixed(Math.min(places, 20));
  };
  const time = (seconds) => {
    if (seconds === null || seconds === undefined) return "-";
    if (seconds > 0 && seconds < 0.5e-9) return "< 1 ns";
    const size = Math.abs(seconds);
    if (!size) return "0 s";
    for (const [unit, factor] of [["ns", 1e-9], ["us", 1e-6], ["ms", 1e-3]]) {
      if (size < 999.5 * factor) return digits(seconds / factor) + " " + unit;
    }
    return digits(seconds) + " s";
  };
  const count = (number) => {
    if (number === null || number === undefined) return "-";
    for (const [factor, unit] of [[1e9, " G"], [1e6, " M"], [1e3, " k"]]) {
      if (number >= 0.9995 * factor) return digits(number / factor) + unit;
    }
    return String(Math.round(number));
  };
  const PALETTE = 8;
  const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

  // ---- the parts of a run that are shown

  const drawn = JSON.parse(byId("gnomon-drawn").textContent);
  // A schedule that was not proved has the time of each operator on each backend, but no runs.
  const traced = (operators) => [...new Set(operators.flatMap((op) => Object.keys(op.times_us || {})))].map((label) => ({
    label, runs: { profile: null }, assignment: operators.map((op) => (op.times_us[label] === undefined ? null : op.exact)),
    operators_s: operators.map((op) => (op.times_us[label] === undefined ? null : op.times_us[label] * 1e-6)),
  }));
  const load = (number) => {
    const told = JSON.parse(byId("gnomon-document" + (number ? "-" + (number + 1) : "")).textContent);
    const whole = told.proof || told;
    const operators = whole.operators || [];
    const rows = whole.contenders || whole.columns || whole.points || traced(operators);
    const places = new Map(operators.map((row, place) => [row.index, place]));
    const configurations = rows.filter((row) => row.runs && !row.failure).map((row) => {
      const own = row.operators_s && row.operators_s.length ? row.operators_s : null;
      const times = operators.map((op, k) => (own ? own[k] : op.times_s ? op.times_s[row.label] ?? null : null));
      const within = operators.map((op) => (op.within ? op.within[row.label] ?? null : null));
      // A model that was converted for a runtime has operators of its own: its kernels belong to none of these.
      const joined = times.some((one) => one !== null);
      const profile = row.runs.profile;
      const backends = operators.map((_, k) => (row.assignment && row.assignment[k]) || null);
      const kernels = (profile && joined ? profile.operators : []).map((members) => members.map((one) => places.get(one)).filter((one) => one !== undefined));
      kernels.forEach((members, k) => { for (const one of members) backends[one] ??= profile.backend[k]; });
      return { label: row.label, times, within, backends, kernels, joined };
    });
    return { whole, operators, configurations, layout: drawn.layouts[number] };
  };

  const live = byId("live");
  const state = { run: null, configuration: 0, by: "time", selected: null, order: [], sort: null, down: true, shown: 0 };
  const parts = [];
  const backendsOf = (run) => [...new Set(run.configurations.flatMap((one) => one.backends))].filter(Boolean);

  const section = (id, title) => {
    const heading = make("h2", { id: id + "-h" }, title);
    const made = make("section", { id, "aria-labelledby": id + "-h" }, heading);
    live.append(made);
    const link = make("a", { href: "#" + id }, title);
    byId("nav-more").append(link);
    return [made, (hidden) => { made.hidden = link.hidden = hidden; }];
  };
  const chooser = (title, options, change) => {
    const made = make("select");
    options.forEach(([value, told]) => made.append(make("option", { value }, told)));
    made.addEventListener("change", () => change(made.value));
    return [make("label", {}, title + " ", made), made];
  };
  const button = (told, act, label = told) => {
    const made = make("button", { type: "button", "aria-label": label }, told);
    made.addEventListener("click", act);
    return made;
  };

  // ---- operators: a table whose rows are made only as far as the user scrolls

  const CHUNK = 80;
  let body, counted, heads, scroller;
  const columnsOf = (run) => {
    const timed = run.configurations.filter((one) => one.times.some((t) => t !== null));
    const backends = run.configurations[state.configuration]?.backends || [];
    const most = timed.reduce((best, one) => one.times.reduce((a, t) => Math.max(a, t || 0), best), 0);
    return [
      { title: "#", number: true, value: (k) => run.operators[k].index },
      { title: "operator", value: (k) => run.operators[k].name },
      { title: "type", value: (k) => run.operators[k].type },
      { title: "multiply-adds", number: true, value: (k) => run.operators[k].macs, told: count },
      ...(backends.some(Boolean) ? [{ title: "backend", value: (k) => backends[k] || "-" }] : []),
      ...timed.map((one) => ({
        title: one.label, number: true, times: one, most,
        value: (k) => one.times[k], told: time,
      })),
    ];
  };
  let columns = [];
  const addRows = (upTo) => {
    const run = state.run;
    const timed = columns.filter((one) => one.times);
    const rows = document.createDocumentFragment();
    for (; state.shown < Math.min(upTo, state.order.length); state.shown++) {
      const k = state.order[state.shown];
      const known = timed.map((one) => one.times.times[k]).filter((one) => one > 0);
      const low = Math.min(...known);
      const least = known.length > 1 && known.filter((one) => one === low).length === 1 ? low : null;
      const row = make("tr", { "data-k": k, "aria-selected": String(state.selected === k), tabindex: state.shown ? "-1" : "0" });
      for (const [place, column] of columns.entries()) {
        const value = column.value(k);
        let told = column.told ? column.told(value) : value ?? "-";
        const cell = place === 1 ? make("th", { scope: "row", title: clean(told) }) : make("td");
        if (column.number) cell.className = "n";
        if (column.times) {
          const leader = column.times.within[k];
          if (leader !== null) told = "with " + leader;
          else if (value !== null) {
            cell.className = value === least ? "n bar least" : "n bar";
            if (value === least) cell.title = "the least of this row";
            cell.style.setProperty("--share", (100 * value / column.most).toFixed(1) + "%");
          }
        }
        cell.append(place === 1 ? shorten(told, 56) : clean(told));
        row.append(cell);
      }
      rows.append(row);
    }
    body.append(rows);
    return run;
  };
  const listRows = () => {
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const { run, sort } = state;
    const matches = (k) => {
      const text = columns.slice(0, 5).filter((one) => !one.times && !one.told).map((one) => one.value(k)).join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    };
    state.order = run.operators.map((_, k) => k).filter(matches);
    if (sort !== null) {
      const { value } = columns[sort];
      const sign = state.down ? -1 : 1;
      state.order.sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        if (x === null || y === null) return (x === null) - (y === null) || a - b;
        return sign * (typeof x === "number" ? x - y : x < y ? -1 : x > y ? 1 : 0) || a - b;
      });
    }
    body.replaceChildren();
    state.shown = 0;
    addRows(CHUNK);
    scroller.scrollTop = 0;
    counted.textContent = state.order.length === run.operators.length ? run.operators.length + " operators"
      : state.order.length + " of " + run.operators.length + " operators";
    [...heads.children].forEach((head, k) => {
      if (sort === k) head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
      head.firstChild.lastChild.textContent = sort !== k ? "" : state.down ? " \u25bc" : " \u25b2";
    });
  };
  const headRows = () => {
    columns = columnsOf(state.run);
    if (state.sort !== null && state.sort >= columns.length) state.sort = null;
    heads.replaceChildren(...columns.map((column, k) => {
      const act = make("button", { type: "button", title: "Sort by " + clean(column.title) }, shorten(column.title, 34), make("span"));
      act.addEventListener("click", () => {
        state.down = state.sort === k ? !state.down : Boolean(column.number && k);
        state.sort = k;
        listRows();
      });
      return make("th", { scope: "col", ...(column.number ? { class: "n" } : {}) }, act);
    }));
    listRows();
  };
  const buildOperators = () => {
    const [made] = section("operators", "Operators");
    const search = make("input", { id: "search", type: "search", size: "28", placeholder: "name, type, backend" });
    search.addEventListener("input", listRows);
    counted = make("span", { role: "status" });
    made.append(make("div", { class: "tools" }, make("label", {}, "Search ", search), counted));
    heads = make("tr");
    body = make("tbody");
    const table = make("table", { "aria-label": "Operators" }, make("thead", {}, heads), body);
    scroller = make("div", { id: "operators-table", class: "scroll", role: "group", tabindex: "0", "aria-label": "Operators" }, table);
    scroller.addEventListener("scroll", () => {
      if (scroller.scrollTop + scroller.clientHeight > scroller.scrollHeight - 400) addRows(state.shown + CHUNK);
    }, { passive: true });
    body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row) select(Number(row.dataset.k), "table");
    });
    scroller.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step || event.target.tagName === "BUTTON") return;
      event.preventDefault();
      const place = state.order.indexOf(state.selected);
      const next = state.order[Math.max(0, Math.min(state.order.length - 1, place + step))];
      if (next !== undefined) select(next, "keys");
    });
    const note = make("p", { class: "note" },
      "Times are from the runtimes' own profilers, scaled to calls without them; \u25c4 marks the least time of a row; with 3: computed together with operator 3. The arrow keys move between rows.");
    made.append(scroller, note);
    parts.push({ change: headRows, selected: (k, from) => {
      body.querySelector('[aria-selected="true"]')?.setAttribute("aria-selected", "false");
      const place = state.order.indexOf(k);
      if (place < 0) return;
      if (place >= state.shown) addRows(place + CHUNK);
      const row = body.children[place];
      row.setAttribute("aria-selected", "true");
      if (from !== "table") scroller.scrollTop = row.offsetTop - scroller.clientHeight / 2;
    } });
  };

  const select = (k, from) => {
    state.selected = k;
    for (const part of parts) part.selected?.(k, from);
    const op = state.run.operators[k];
    const told = state.run.configurations.map((one) => one.label + " " + time(one.times[k])).join(", ");
    byId("told").textContent = clean("Operator " + op.index + " " + op.name + " (" + op.type + "): " + (told || "no times"));
  };

  // ---- the graph: the page has its layout; the script adds colors, groups and navigation

  const buildGraph = () => {
    const [made, hide] = section("graph", "Graph");
    const [whose, whoseSelect] = chooser("Configuration", [], (value) => {
      state.configuration = Number(value);
      paint();
      headRows();
    });
    const [by, bySelect] = chooser("Color by", [["time", "time"], ["backend", "backend"], ["type", "type"]], (value) => {
      state.by = value;
      paint();
    });
    const svg = byId("graph-view");
    svg.removeAttribute("hidden");
    const NS = svg.namespaceURI;
    const draw = (tag, settings) => {
      const one = document.createElementNS(NS, tag);
      for (const [name, value] of Object.entries(settings)) one.setAttribute(name, value);
      return one;
    };
    const world = draw("g", {});
    svg.append(world);
    const legend = make("ul", { class: "legend" });
    const told = make("p", { id: "told", class: "told", role: "status" }, "Click an operator, here or in the table.");
    let nodes = [], at = { x: 0, y: 0, scale: 1 }, groups = null, tint = null;
    // Nodes are made when they first come into view: few of thousands are ever seen.
    const bring = () => {
      const { x, y, node } = state.run.layout;
      const [left, up] = [-at.x / at.scale - node[0], -at.y / at.scale - node[1]];
      const [right, down] = [(svg.clientWidth - at.x) / at.scale, (svg.clientHeight - at.y) / at.scale];
      const fresh = [];
      for (let k = 0; k < x.length; k++) {
        if (nodes[k] || x[k] < left || x[k] > right || y[k] < up || y[k] > down) continue;
        nodes[k] = draw("g", { class: k === state.selected ? "node selected" : "node", "data-k": k, transform: "translate(" + x[k] + " " + y[k] + ")" });
        nodes[k].append(draw("rect", { class: "box", width: node[0], height: node[1], rx: 4 }), draw("text", { x: 7, y: node[1] / 2 + 4 }));
        tint(k);
        fresh.push(nodes[k]);
      }
      groups.before(...fresh);
    };
    const show = () => {
      world.setAttribute("transform", "translate(" + at.x.toFixed(1) + " " + at.y.toFixed(1) + ") scale(" + at.scale.toFixed(4) + ")");
      svg.classList.toggle("far", at.scale < 0.4);
      bring();
    };
    const zoom = (factor, x = svg.clientWidth / 2, y = svg.clientHeight / 2) => {
      const scale = Math.max(0.02, Math.min(4, at.scale * factor));
      at = { x: x - (x - at.x) * scale / at.scale, y: y - (y - at.y) * scale / at.scale, scale };
      show();
    };
    const whole = () => {
      const [width, height] = state.run.layout.size;
      return Math.min(1.2, svg.clientWidth / (width + 20), svg.clientHeight / (height + 20));
    };
    const fit = () => {
      const [width, height] = state.run.layout.size;
      const scale = whole();
      at = { x: (svg.clientWidth - width * scale) / 2, y: Math.max(8, (svg.clientHeight - height * scale) / 2), scale };
      show();
    };
    const centre = (k) => {
      const { x, y, node } = state.run.layout;
      const scale = Math.max(at.scale, 0.8);
      at = { x: svg.clientWidth / 2 - (x[k] + node[0] / 2) * scale, y: svg.clientHeight / 2 - (y[k] + node[1] / 2) * scale, scale };
      show();
    };
    const paint = () => {
      const { run } = state;
      const one = run.configurations[state.configuration];
      const kinds = state.by === "backend" ? backendsOf(run) : [...new Set(run.operators.map((op) => op.type))];
      const most = one ? Math.max(...one.times.map((t) => t || 0)) : 0;
      const letters = new Map(kinds.map((kind, k) => [kind, k]));
      tint = (k) => {
        const op = run.operators[k];
        const [box, text] = nodes[k].childNodes;
        const took = one?.times[k] ?? null;
        let fill = "var(--node)", mark = "";
        if (state.by === "time") {
          if (took !== null && most) fill = "color-mix(in srgb, var(--heat) " + (100 * Math.sqrt(took / most)).toFixed(0) + "%, var(--node))";
        } else {
          const kind = letters.get(state.by === "type" ? op.type : one?.backends[k]);
          if (kind !== undefined) {
            fill = "var(--c" + (kind % PALETTE) + ")";
            mark = state.by === "backend" ? LETTERS[kind % 26] + " " : "";
          }
        }
        box.style.fill = fill;
        nodes[k].querySelector(".part")?.remove();
        if (state.by === "time" && took && most) {
          nodes[k].append(draw("rect", { class: "part", y: run.layout.node[1] - 3, height: 3, width: (took / most * run.layout.node[0]).toFixed(1) }));
        }
        text.textContent = mark + op.index + " " + shorten(op.type, 21 - mark.length);
      };
      nodes.forEach((_, k) => tint(k));
      legend.replaceChildren();
      const key = (told, fill) => {
        const swatch = make("i");
        swatch.style.background = fill;
        legend.append(make("li", {}, swatch, told));
      };
      if (state.by === "time") {
        key("least time", "var(--node)");
        key("most (" + time(most || null) + "); the strip below a node shows its share of this time", "var(--heat)");
      } else {
        kinds.slice(0, 16).forEach((kind, k) => key((state.by === "backend" ? LETTERS[k % 26] + ": " : "") + shorten(kind, 30), "var(--c" + (k % PALETTE) + ")"));
        if (kinds.length > 16) legend.append(make("li", {}, "and " + (kinds.length - 16) + " more"));
      }
      boxes(one);
      if (groups.childNodes.length) legend.append(make("li", {}, "dashed: computed as one kernel; solid: together on one backend"));
    };
    // Boxes are drawn around nodes that stand together: a group that goes on in another strip has a box there too.
    const boxes = (one) => {
      groups.replaceChildren();
      if (!one?.joined) return;
      const { x, y, node } = state.run.layout;
      const edges = state.run.whole.graph.edges;
      const places = new Map(state.run.operators.map((row, place) => [row.index, place]));
      const pairs = edges.producer.map((a, k) => [places.get(a), places.get(edges.consumer[k])]);
      const several = new Set(one.backends.filter(Boolean)).size > 1;
      const fused = new Array(state.run.operators.length).fill(null);
      one.kernels.forEach((members, number) => {
        if (members.length > 1) members.forEach((k) => { fused[k] = number; });
      });
      one.within.forEach((leader, k) => {
        if (leader !== null && fused[k] === null) fused[k] = fused[places.get(leader)] = "with " + leader;
      });
      const draws = (of, room, kind) => {
        const parent = of.map((_, k) => k);
        const top = (k) => { while (parent[k] !== k) k = parent[k] = parent[parent[k]]; return k; };
        for (const [a, b] of pairs) {
          if (of[a] !== null && of[a] === of[b] && Math.abs(x[a] - x[b]) < 2.2 * (node[0] + 32) && Math.abs(y[a] - y[b]) < 4 * (node[1] + 18)) parent[top(a)] = top(b);
        }
        const found = new Map();
        of.forEach((name, k) => {
          if (name === null) return;
          const corner = found.get(top(k)) || [Infinity, Infinity, -Infinity, -Infinity, 0];
          found.set(top(k), [Math.min(corner[0], x[k]), Math.min(corner[1], y[k]), Math.max(corner[2], x[k]), Math.max(corner[3], y[k]), corner[4] + 1]);
        });
        for (const [left, up, right, down, members] of found.values()) {
          if (members > 1) groups.append(draw("rect", { class: "group " + kind, x: left - room, y: up - room, rx: 6,
            width: right - left + node[0] + 2 * room, height: down - up + node[1] + 2 * room }));
        }
      };
      draws(fused, 4, "fused");
      if (several) draws(one.backends, 7, "delegated");
    };
    const change = () => {
      const { run } = state;
      hide(!run.layout);
      whoseSelect.replaceChildren(...run.configurations.map((one, k) => make("option", { value: k }, shorten(one.label, 50))));
      if (!run.layout) return;
      state.by = run.configurations.some((one) => one.joined) ? "time" : "type";
      bySelect.value = state.by;
      for (const option of bySelect.options) option.disabled = state.by === "type" && option.value !== "type";
      whoseSelect.value = String(state.configuration);
      const { x, y, node } = run.layout;
      const places = new Map(run.operators.map((row, place) => [row.index, place]));
      const edges = run.whole.graph.edges;
      const middle = node[0] / 2;
      const path = edges.producer.map((producer, k) => {
        const [a, b] = [places.get(producer), places.get(edges.consumer[k])];
        const [ax, ay, bx, by_] = [x[a] + middle, y[a] + node[1], x[b] + middle, y[b]];
        if (by_ <= ay) {  // to the top of a strip further right: through the gap before that strip
          return "M" + ax + " " + ay + "v7H" + (x[b] - 12) + "V" + (by_ - 7) + "H" + bx + "v7";
        }
        if (Math.abs(ax - bx) < 8 && by_ - ay > 2 * node[1]) {
          const out = middle + 14;  // around the nodes in between
          return "M" + ax + " " + ay + "C" + (ax + out) + " " + (ay + 26) + " " + (bx + out) + " " + (by_ - 26) + " " + bx + " " + by_;
        }
        const bend = Math.max(10, Math.min(60, Math.abs(by_ - ay) / 2));
        return "M" + ax + " " + ay + "C" + ax + " " + (ay + bend) + " " + bx + " " + (by_ - bend) + " " + bx + " " + by_;
      });
      groups = draw("g", {});
      nodes = [];
      world.replaceChildren(draw("path", { class: "edge", d: path.join("") }), groups);
      paint();
      if (whole() < 0.5) {  // begin at a legible size
        at = { x: 12, y: 12, scale: 0.8 };
        show();
      } else fit();
    };
    svg.addEventListener("click", (event) => {
      const node = event.target.closest(".node");
      if (node && !moved) select(Number(node.dataset.k), "graph");
    });
    const title = draw("title", {});  // one title for all nodes: it belongs to the node under the pointer
    svg.addEventListener("pointerover", (event) => {
      const node = event.target.closest(".node");
      if (!node || title.parentNode === node) return;
      const k = Number(node.dataset.k);
      const op = state.run.operators[k];
      const one = state.run.configurations[state.configuration];
      const leader = one?.within[k] ?? null;
      title.textContent = clean(op.index + " " + op.name + " (" + op.type + ")"
        + (leader !== null ? ", computed with " + leader : "") + (one && one.times[k] !== null ? ", " + time(one.times[k]) : "")
        + (one?.backends[k] ? ", " + one.backends[k] : ""));
      node.append(title);
    });
    let held = null, moved = false;
    svg.addEventListener("pointerdown", (event) => { held = [event.clientX, event.clientY]; moved = false; });
    svg.addEventListener("pointermove", (event) => {
      if (!held || !event.buttons) return;
      const [dx, dy] = [event.clientX - held[0], event.clientY - held[1]];
      if (!moved && Math.abs(dx) + Math.abs(dy) < 4) return;
      if (!moved) svg.setPointerCapture(event.pointerId);
      moved = true;
      held = [event.clientX, event.clientY];
      at = { ...at, x: at.x + dx, y: at.y + dy };
      show();
    });
    svg.addEventListener("pointerup", () => { held = null; });
    svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && document.activeElement !== svg) return;
      event.preventDefault();
      zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, event.offsetX, event.offsetY);
    }, { passive: false });
    svg.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
      if (moves) at = { ...at, x: at.x + moves[0], y: at.y + moves[1] };
      else if (event.key === "+") zoom(1.25);
      else if (event.key === "-") zoom(0.8);
      else if (event.key === "0") fit();
      else if (event.key === "n" || event.key === "p") select(Math.max(0, Math.min(state.run.operators.length - 1, (state.selected ?? -1) + (event.key === "n" ? 1 : -1))), "keys");
      else return;
      event.preventDefault();
      show();
    });
    const keys = "To move and zoom: drag, Ctrl and the wheel, or the keys: arrows, + and -, 0 for the whole graph, n and p for the next and previous operator.";
    made.append(make("div", { class: "tools" }, whose, by, button("+", () => zoom(1.25), "Larger"), button("\u2212", () => zoom(0.8), "Smaller"),
      button("Whole", fit), button("Heaviest", () => {
        const times = state.run.configurations[state.configuration]?.times || [];
        const most = times.reduce((best, t, k) => ((t || 0) > (times[best] || 0) ? k : best), 0);
        select(most, "button");
      })), legend, svg, told, make("p", { class: "note" }, keys));
    parts.push({ change, selected: (k, from) => {
      world.querySelector(".selected")?.classList.remove("selected");
      if (!state.run.layout) return;
      nodes[k]?.classList.add("selected");
      if (from !== "graph") centre(k);
    } });
  };

  // ---- the page

  const THEMES = [["", "as the system"], ["dark", "dark"], ["light", "light"]];
  let theme = 0;
  const paintTheme = (name) => {
    if (name) root.dataset.theme = name;
    else delete root.dataset.theme;
  };
  byId("theme").addEventListener("click", () => {
    theme = (theme + 1) % THEMES.length;
    paintTheme(THEMES[theme][0]);
    byId("theme").textContent = "Theme: " + THEMES[theme][1];
  });
  addEventListener("beforeprint", () => {
    document.querySelectorAll("details").forEach((one) => { one.open = true; });
    paintTheme("light");
  });
  addEventListener("afterprint", () => paintTheme(THEMES[theme][0]));

  const choose = (number) => {
    state.run = load(number);
    state.configuration = 0;
    state.selected = null;
    const chosen = state.run.whole.decision?.chosen ?? state.run.whole.fastest;
    const place = state.run.configurations.findIndex((one) => one.label === chosen && one.joined);
    state.configuration = place >= 0 ? place : Math.max(0, state.run.configurations.findIndex((one) => one.joined));
    // The table first, so that it can be used at once; then each other part in a turn of its own.
    const [first, ...others] = parts;
    const { run } = state;
    first.change();
    const next = () => {
      const part = others.shift();
      if (!part || state.run !== run) {
        root.dataset.drawn = String(Math.round(performance.now()));
        return;
      }
      part.change();
      setTimeout(next);
    };
    setTimeout(next);
  };
  const useful = drawn.names.map((name, number) => [number, name]).filter(([number]) => drawn.layouts[number]);
  if (useful.length) {
    if (useful.length > 1) {
      const [label] = chooser("Operators and graph of run", useful.map(([number, name]) => [number, shorten(name, 60)]), (value) => choose(Number(value)));
      live.append(make("div", { class: "tools" }, label));
    }
    buildOperators();
    buildGraph();
    choose(useful[0][0]);
  } else root.dataset.drawn = String(Math.round(performance.now()));
  root.dataset.ready = String(Math.round(performance.now()));
})();
