// The front end of every stepper: puts frames, which Python makes, on the screen. See `ren_lab.lens.stepping` for the data.
// It asks for a frame with {ask: "frame"} and for what is known of a vertex with {ask: "card"}; answers carry the same key.

const HELP = [
  ["→ ↓ j", "next"], ["← ↑ k", "previous"], ["Home End", "first, last"], ["] [", "next, previous rewrite"], ["space", "play, pause"],
  ["/", "search (Enter: next hit)"], ["f", "focus on what is selected, or everything"], ["+ − 0", "zoom in, out, fit; 0 again: all of it"],
  ["Esc", "select nothing"], ["?", "this help"],
];
const WINDOW = 300; // states listed at once
// Words are still read at a half of their size: a picture that would have to be smaller to be seen whole is fitted to the width
// alone, as readers scroll downwards anyway.
const LEGIBLE = 0.5;
const COMFORTABLE = 0.8;
const SMALLEST = 0.3; // of a picture that is fitted to the width

const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("aria-")) element.setAttribute(name, String(value));
    else if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
};
const button = (words, label, hook, onclick) => make("button", { type: "button", title: label, "aria-label": label, "data-do": hook, onclick }, words);

function render({ model, el }) {
  const outline = model.get("outline");
  const states = outline.states;
  const last = states.length - 1;
  const frames = new Map(Object.entries(model.get("frames") || {}));
  const cards = new Map();
  const asked = new Set();
  let shown = null; // the frame on the screen
  let shownKey = "";
  let zoom = 0; // 0: fit
  let whole = false; // fit all of it, however small
  const open = new Set(); // quiet stretches that are unfolded, by their first state
  let timer = 0;
  let hits = [];

  // the frame of the page

  const slider = make("input", { type: "range", min: 0, max: Math.max(last, 0), step: 1, "aria-label": outline.what, "data-do": "slider",
    oninput: () => go(+slider.value) });
  const counter = make("output", { "data-hook": "counter" });
  const playing = button("▶", "play (space)", "play", () => play(!model.get("playing")));
  const rewrites = make("span", { class: "rewrites" },
    button("‹", "previous rewrite ([)", "back-rewrite", () => goRewrite(-1)), make("output", { "data-hook": "rewrite" }),
    button("›", "next rewrite (])", "next-rewrite", () => goRewrite(1)));
  const search = make("input", { type: "search", placeholder: "search  /", "aria-label": "search", "data-do": "search",
    oninput: () => put({ search: search.value }) });
  const fold = make("select", { "aria-label": "fold", title: "fold", "data-do": "fold", onchange: () => put({ fold: fold.value }) },
    ...outline.folds.map(([name, words]) => make("option", { value: name }, words)));
  const focus = button("focus", "focus on what is selected (f)", "focus", () => toggleFocus());
  const help = make("dl", { class: "help", hidden: true }, ...HELP.flatMap(([keys, words]) => [make("dt", {}, keys), make("dd", {}, words)]));
  const toolbar = make("div", { class: "tools", role: "toolbar", "aria-label": "stepper" },
    button("◀", "previous (←, k)", "back", () => move(-1)), playing, button("▶▏", "next (→, j)", "next", () => move(1)), slider, counter,
    ...(outline.kind === "pass" ? [rewrites] : []), search, ...(outline.folds.length ? [fold, focus] : []),
    button("−", "smaller", "zoom-out", () => scale(1 / 1.25)), button("+", "larger", "zoom-in", () => scale(1.25)),
    button("fit", "fit the picture (0)", "fit", () => scale(0)), button("?", "keys (?)", "help", () => { help.hidden = !help.hidden; }));
  const title = make("p", { class: "title" }, outline.title);
  const sentence = make("p", { class: "sentence", role: "status", "aria-live": "polite", "data-hook": "sentence" });
  const progress = make("progress", { max: 1, "aria-label": "layout", title: "laying out every picture" });
  const list = make("ol", { class: "list", role: "listbox", "aria-label": `every ${outline.what}`, "data-hook": "list" });
  const picture = make("div", { class: "picture", "data-hook": "picture" });
  const about = make("div", { "data-hook": "card" });
  const beside = make("div", { "data-hook": "sections" });
  const text = make("pre", { class: "text", "data-hook": "text", "aria-label": "text form" });
  const aside = make("aside", { class: "aside", "aria-label": "details" }, about, beside, text);
  const root = make("div", { class: `ren-lab ren-stepper kind-${outline.kind}`, tabindex: 0, role: "group", "aria-label": outline.title,
    "data-lm-suppress-shortcuts": "true", "data-stepper": outline.kind, onkeydown: keys },
    title, toolbar, help, sentence, progress, make("div", { class: "panes" }, list, picture, aside));
  el.append(root);
  picture.innerHTML = outline.pictures.join("");
  const own = make("div", { class: "own" });
  picture.append(own);

  // moving about

  const frameKey = (step, rewrite = 0) => [step, rewrite, model.get("fold"), model.get("focus")].join("|");
  const put = (values) => {
    for (const [name, value] of Object.entries(values)) model.set(name, value);
    model.save_changes();
  };
  const clamp = (value, top) => Math.max(0, Math.min(value, top));
  const go = (step, rewrite = 0) => put({ step: clamp(step, Math.max(last, 0)), rewrite });
  const inFold = (step) => quietRuns().find(([a, b]) => a <= step && step <= b && !open.has(a));
  function move(by) {
    let step = model.get("step") + by;
    for (let run = inFold(step); run && by && step > 0 && step < last; run = inFold(step)) step = by > 0 ? run[1] + 1 : run[0] - 1;
    go(step);
  }
  function goRewrite(by) {
    const step = model.get("step");
    const count = states[step]?.rewrites ?? 0;
    put({ rewrite: clamp(model.get("rewrite") + by, count) });
  }
  function play(on) {
    put({ playing: on });
  }
  function toggleFocus() {
    put({ focus: model.get("focus") ? "" : model.get("selected") });
  }
  function tick() {
    clearInterval(timer);
    const on = model.get("playing");
    playing.textContent = on ? "⏸" : "▶";
    playing.setAttribute("aria-pressed", on);
    if (on) timer = setInterval(() => {
      if (model.get("step") >= last) return play(false);
      if (shownKey === frameKey(model.get("step"), model.get("rewrite"))) move(1); // wait for the picture
    }, Math.max(60, model.get("interval") || 700));
  }
  function keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target === search;
    if (typing && !["Enter", "Escape"].includes(event.key)) return;
    if (["SELECT", "INPUT"].includes(event.target.tagName) && !typing && event.key !== "Escape" && /^(Arrow|Home|End|Page| )/.test(event.key)) return;
    if (event.target.tagName === "BUTTON" && [" ", "Enter"].includes(event.key)) return;
    const act = {
      ArrowRight: () => move(1), ArrowDown: () => move(1), j: () => move(1), ArrowLeft: () => move(-1), ArrowUp: () => move(-1), k: () => move(-1),
      Home: () => go(0), End: () => go(last), "]": () => goRewrite(1), "[": () => goRewrite(-1), " ": () => play(!model.get("playing")),
      "/": () => search.focus(), f: toggleFocus, "+": () => scale(1.25), "-": () => scale(1 / 1.25), 0: () => scale(0),
      "?": () => { help.hidden = !help.hidden; }, Enter: () => { if (typing && hits.length) nextHit(); },
      Escape: () => { if (typing) root.focus(); else put({ selected: "", focus: "" }); },
    }[event.key];
    if (!act) return;
    act();
    event.preventDefault();
    event.stopPropagation();
  }

  // asking and answering

  function want(step, rewrite = 0) {
    const key = frameKey(step, rewrite);
    if (frames.has(key)) return frames.get(key);
    if (!asked.has(key)) {
      asked.add(key);
      model.send({ ask: "frame", key, step, rewrite, fold: model.get("fold"), focus: model.get("focus") });
    }
    return null;
  }
  function answer(message) {
    if (message.frame) {
      frames.set(message.key, message.frame);
      asked.delete(message.key);
      update();
    } else if (message.card) {
      cards.set(message.key, message.card);
      asked.delete(message.key);
      showCard();
    } else if (message.refresh) {
      frames.clear(); // everything has its final place now
      asked.clear();
      shownKey = "";
      update();
    }
  }

  // showing

  function update() {
    if (last < 0) {
      const frame = want(0);
      sentence.textContent = frame ? frame.sentence : "Nothing to step through.";
      if (frame) fillSections(beside, frame.sections);
      return;
    }
    const step = clamp(model.get("step"), last);
    const rewrite = model.get("rewrite");
    slider.value = step;
    slider.setAttribute("aria-valuetext", states[step].label);
    counter.textContent = `${step} / ${last}`;
    root.dataset.step = step;
    root.dataset.rewrite = rewrite;
    const count = states[step].rewrites;
    rewrites.classList.toggle("none", !count);
    rewrites.querySelector("output").textContent = count ? `rewrite ${rewrite || "–"} / ${count}` : "no rewrites";
    fold.value = model.get("fold");
    focus.setAttribute("aria-pressed", !!model.get("focus"));
    focus.disabled = !model.get("focus") && !model.get("selected");
    showList(step);
    const key = frameKey(step, rewrite);
    const frame = want(step, rewrite);
    root.classList.toggle("waiting", !frame);
    if (frame && key !== shownKey) {
      shown = frame;
      shownKey = key;
      showFrame(frame);
      root.dataset.shown = key;
      for (const near of [step + 1, step - 1]) if (near >= 0 && near <= last) want(near); // for the next key press
    }
    mark();
    showCard();
  }

  function quietRuns() {
    const runs = [];
    states.forEach((state, i) => {
      const run = runs.at(-1);
      if (state.quiet && run && run[1] === i - 1) run[1] = i;
      else if (state.quiet) runs.push([i, i]);
    });
    return runs;
  }

  let listed = ""; // what the list was made for; as long as that stays, only the mark moves
  function showList(step) {
    const first = last < WINDOW ? 0 : clamp(Math.floor(step / WINDOW - 0.5) * WINDOW, last);
    const run = inFold(step);
    const made = [first, run ? run[0] : "", open.size].join("|");
    if (made !== listed) list.replaceChildren(...listRows(step, first));
    listed = made;
    list.querySelector(".here")?.classList.remove("here");
    list.querySelector("[aria-selected=true]")?.setAttribute("aria-selected", "false");
    const here = list.querySelector(`[data-step="${step}"]`);
    if (!here) return;
    here.classList.add("here");
    here.setAttribute("aria-selected", "true");
    showHere();
  }
  function showHere() {
    const here = list.querySelector(".here");
    if (here) list.scrollTop = clamp(here.offsetTop - list.clientHeight / 2, 1e9);
  }

  function listRows(step, first) {
    const rows = [];
    const runs = new Map(quietRuns());
    for (let i = first; i <= Math.min(last, first + 2 * WINDOW); i++) {
      const end = runs.get(i);
      if (end !== undefined && !open.has(i) && !(i <= step && step <= end)) {
        const names = states.slice(i, end + 1).map((state) => state.label).join(", ");
        rows.push(make("li", { class: "quiet", title: names, role: "option", "aria-selected": false, onclick: () => { open.add(i); showList(model.get("step")); } },
          end > i ? `▸ ${end - i + 1} changed nothing` : `▸ ${states[i].label}: nothing`));
        i = end;
        continue;
      }
      const state = states[i];
      const badges = state.badges.map(([badge, mark, n]) => make("span", { class: `badge ${mark}`, title: `${n} ${mark}` }, `${badge}${n}`));
      rows.push(make("li", { role: "option", "aria-selected": false, "data-step": i, onclick: () => go(i),
        class: [state.quiet && "quiet", state.alert && "alert"].filter(Boolean).join(" ") },
        make("span", { class: "label" }, state.label), ...badges, make("small", {}, state.note),
        ...(state.bar == null ? [] : [make("i", { class: "share", style: `width:${(state.bar * 100).toFixed(1)}%` })])));
    }
    return rows;
  }

  function showFrame(frame) {
    sentence.textContent = frame.sentence;
    const before = new Map([...own.querySelectorAll(".v")].map((v) => [v.dataset.key, v.getAttribute("transform")]));
    if (frame.pictures.length || own.childElementCount) own.innerHTML = frame.pictures.join("");
    resize();
    glide(before);
    patch(frame.patch);
    fillSections(beside, frame.sections);
    fillText(frame.lines);
    (frame.pictures.length || outline.pictures.length ? aside : picture).append(text); // where nothing is drawn, the text is the picture
    reveal(own.querySelector(".mark-added, .mark-changed, .mark-removed") || picture.querySelector(".v.now"));
  }

  // A vertex that stands elsewhere than before glides there, so that the eye can follow it.
  function glide(before) {
    if (!before.size || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    const place = (words) => /translate\(([^,]+),([^)]+)\)/.exec(words || "");
    for (const vertex of own.querySelectorAll(".v")) {
      const [old, now] = [place(before.get(vertex.dataset.key)), place(vertex.getAttribute("transform"))];
      if (!old || !now || old[0] === now[0]) continue;
      vertex.animate([{ transform: `translate(${old[1]}px,${old[2]}px)` }, { transform: `translate(${now[1]}px,${now[2]}px)` }], { duration: 350, easing: "ease" });
    }
  }

  const byKey = (key) => picture.querySelectorAll(`[data-key="${CSS.escape(key)}"]`);
  let classed = [];
  function patch(changes) {
    for (const [element, names] of classed) element.classList.remove(...names);
    classed = [];
    for (const [key, values] of Object.entries(changes)) {
      for (const element of byKey(key)) {
        for (const [name, value] of Object.entries(values)) {
          if (name === "text") element.textContent = value;
          else if (name === "class") {
            const names = value.split(" ");
            element.classList.add(...names);
            classed.push([element, names]);
          } else element.setAttribute(name, value);
        }
      }
    }
  }

  function fillSections(target, sections) {
    target.replaceChildren(...sections.map((part) => {
      const body = [];
      if (part.warning) body.push(make("p", { class: "alert", role: "alert" }, part.warning));
      if (part.rows) body.push(make("table", {}, ...part.rows.map((row) => make("tr", {}, ...row.map((cell) => make("td", {}, cell))))));
      if (part.text) body.push(make("pre", {}, part.text));
      if (part.steps) body.push(make("ol", { class: "steps" }, ...part.steps.map(([number, rule, words]) =>
        make("li", { "data-rewrite": number, value: number, class: number === model.get("rewrite") ? "here" : "", onclick: () => put({ rewrite: number }) },
          make("b", {}, rule), " ", make("code", {}, words || "")))));
      if (!part.title) return make("div", {}, ...body);
      return make("details", { open: !part.steps || model.get("rewrite") > 0 || undefined }, make("summary", {}, part.title), ...body);
    }));
  }

  function fillText(lines) {
    text.hidden = !lines.length;
    text.replaceChildren(...lines.map(([key, kind, words]) =>
      make("span", { class: `line ${kind}`, ...(key ? { "data-line": key } : {}), onclick: () => key && put({ selected: key }) },
        `${{ added: "+", removed: "−", changed: "~" }[kind] || " "} ${words}\n`)));
  }

  // what is selected, and what is found

  function mark() {
    const selected = model.get("selected");
    for (const old of root.querySelectorAll(".sel, .hit")) old.classList.remove("sel", "hit");
    if (selected) {
      for (const element of [...byKey(selected), ...picture.querySelectorAll(`[data-select="${CSS.escape(selected)}"]`)])
        element.classList.add("sel");
      text.querySelector(`[data-line="${CSS.escape(selected)}"]`)?.classList.add("sel");
      showLine();
    }
    const words = model.get("search").trim().toLowerCase();
    if (search.value.trim().toLowerCase() !== words) search.value = model.get("search");
    hits = !words ? [] : [...picture.querySelectorAll(".v")].filter((vertex) => vertex.textContent.toLowerCase().includes(words));
    for (const vertex of hits) vertex.classList.add("hit");
    if (words) for (const line of text.children) line.classList.toggle("hit", line.textContent.toLowerCase().includes(words));
    search.title = words ? `${hits.length} found` : "";
    root.dataset.hits = hits.length;
  }
  function showLine() {
    const line = text.querySelector(".sel");
    if (!line) return;
    if (picture.contains(text)) reveal(line);
    else text.scrollBy(0, line.getBoundingClientRect().top - text.getBoundingClientRect().top - text.clientHeight / 2);
  }
  function nextHit() {
    const at = hits.findIndex((vertex) => keyOf(vertex) === model.get("selected"));
    const vertex = hits[(at + 1) % hits.length];
    put({ selected: keyOf(vertex) });
    reveal(vertex);
  }
  const keyOf = (vertex) => vertex.dataset.select || vertex.dataset.key;
  picture.addEventListener("click", (event) => {
    const vertex = event.target.closest(".v");
    put({ selected: vertex ? keyOf(vertex) : "" });
    root.focus({ preventScroll: true });
  });
  function showCard() {
    const selected = model.get("selected");
    if (!selected) return about.replaceChildren();
    const key = `${shownKey}|${selected}`;
    if (cards.has(key)) {
      fillSections(about, cards.get(key));
      about.dataset.card = selected;
      showLine(); // the card took some of its room
    } else if (!asked.has(key)) {
      asked.add(key);
      const [step, rewrite] = [clamp(model.get("step"), Math.max(last, 0)), model.get("rewrite")];
      model.send({ ask: "card", key, selected, step, rewrite, fold: model.get("fold"), focus: model.get("focus") });
    }
  }

  // size

  function scale(by) {
    if (by) zoom = clamp((zoom || fitted(main())) * by * 100, 800) / 100;
    whole = !by && !zoom && !whole;
    if (!by) zoom = 0;
    resize();
  }
  const main = () => own.querySelector("svg") || [...picture.querySelectorAll("svg")].at(-1);
  function fitted(svg) { // the mode stays from step to step, so this is asked anew for each
    if (!svg) return 1;
    const { width, height } = svg.viewBox.baseVal;
    const across = Math.min(1, (picture.clientWidth - 14) / width);
    const all = Math.min(across, (picture.clientHeight - 14) / height);
    if (whole && svg === main()) return Math.max(0.05, all);
    if (own.contains(svg) && all >= LEGIBLE) return all;
    return Math.max(SMALLEST, own.contains(svg) ? Math.min(COMFORTABLE, across) : across);
  }
  function resize() {
    for (const svg of picture.querySelectorAll("svg")) {
      const { width, height } = svg.viewBox.baseVal;
      const at = zoom || fitted(svg);
      svg.setAttribute("width", width * at);
      svg.setAttribute("height", height * at);
    }
  }
  function reveal(element) {
    if (!element) return;
    const inner = element.getBoundingClientRect();
    const outer = picture.getBoundingClientRect();
    const arena = picture.querySelector(".ren-arena");
    const top = outer.top + (arena && !arena.contains(element) ? arena.getBoundingClientRect().height : 0);
    if (inner.top >= top && inner.bottom <= outer.bottom && inner.left >= outer.left && inner.right <= outer.right) return;
    picture.scrollBy(inner.left + inner.width / 2 - outer.left - outer.width / 2, inner.top + inner.height / 2 - (top + outer.bottom) / 2);
  }

  const showProgress = () => { progress.value = model.get("progress"); progress.hidden = model.get("progress") >= 1; };
  const listeners = [["msg:custom", answer], ["change:playing", tick], ["change:progress", showProgress],
    ...["step", "rewrite", "fold", "focus", "selected", "search"].map((name) => [`change:${name}`, update])];
  for (const [name, listener] of listeners) model.on(name, listener);
  const seen = new ResizeObserver(() => { resize(); showHere(); });
  seen.observe(picture);
  showProgress();
  update();
  tick();
  return () => {
    clearInterval(timer);
    seen.disconnect();
    for (const [name, listener] of listeners) model.off(name, listener);
  };
}

export default { render };
