// Keys, selects that send their form, and parts of a page that renew themselves. Pages work without this module.

const SLOWEST = 30000; // milliseconds between two tries while the console does not answer
const WAIT = 15000; // milliseconds for an answer
const MOST_ROWS = 500; // rows of a part that grows

/* ---------- parts that renew themselves ---------- */

class Live {
  constructor(part) {
    this.part = part;
    this.every = Number(part.dataset.every) * 1000;
    this.address = part.dataset.live;
    this.note = part.parentElement.querySelector("[data-stale]");
    this.failures = 0;
    this.answered = new Date();
    this.plan();
  }

  plan() {
    const pause = this.failures ? Math.min(SLOWEST, this.every * 2 ** this.failures) : this.every;
    this.timer = setTimeout(() => this.renew(), pause);
  }

  async renew() {
    if (!this.part.isConnected) return;
    if (document.hidden) {
      document.addEventListener("visibilitychange", () => this.renew(), { once: true });
      return;
    }
    if (this.part.hasAttribute("data-paused")) {
      this.plan();
      return;
    }
    try {
      const answer = await fetch(this.address, { headers: { "x-fragment": "1" }, signal: AbortSignal.timeout(WAIT) });
      if (answer.status === 401) return this.say("Your session has ended: load the page again to log in.");
      const text = await answer.text();
      if (!answer.ok) throw new Error(textOf(text) || `status ${answer.status}`);
      if (this.part.matches(":active")) return this.plan(); // a button that is replaced while it is pressed gets no click
      this.address = answer.headers.get("x-next") ?? this.address;
      this.show(text);
      this.failures = 0;
      this.answered = new Date();
      this.say("");
      if (answer.headers.has("x-last")) return;
    } catch (error) {
      this.failures += 1;
      const reason = error.name === "TimeoutError" ? "no answer in time" : error.message;
      this.say(`Not renewed since ${this.answered.toLocaleTimeString()} (${reason}). Trying again.`);
    }
    this.plan();
  }

  show(text) {
    const template = document.createElement("template");
    template.innerHTML = text;
    if (this.part.dataset.grows === undefined) {
      const held = focusOf(this.part);
      this.part.replaceChildren(template.content);
      if (held) this.part.querySelector(held)?.focus({ preventScroll: true });
      return;
    }
    const rows = this.part.querySelector("[data-rows]");
    rows.prepend(...template.content.querySelectorAll("tr"));
    while (rows.children.length > MOST_ROWS) rows.lastElementChild.remove();
  }

  say(text) {
    if (!this.note) return;
    this.note.hidden = !text;
    if (this.note.textContent !== text) this.note.textContent = text;
  }
}

function textOf(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content.textContent.trim().replace(/\s+/g, " ").slice(0, 200);
}

function focusOf(part) {
  const at = document.activeElement;
  if (!at || !part.contains(at)) return null;
  if (at.id) return `#${CSS.escape(at.id)}`;
  const link = at.getAttribute("href");
  return link ? `a[href="${CSS.escape(link)}"]` : null;
}

for (const part of document.querySelectorAll("[data-live]")) new Live(part);

document.addEventListener("click", (event) => {
  const pause = event.target.closest("[data-pauses]");
  if (pause) {
    const part = document.getElementById(pause.dataset.pauses);
    const paused = part.toggleAttribute("data-paused");
    pause.textContent = paused ? "Go on" : "Pause";
    pause.setAttribute("aria-pressed", String(paused));
  }
  const opens = event.target.closest("[data-opens]");
  if (opens) document.getElementById(opens.dataset.opens).showModal();
});

// By keyboard, a select changes with each arrow key: then its form is sent with Enter or its button.
let isPointed = false;
document.addEventListener("pointerdown", () => (isPointed = true), true);
document.addEventListener("keydown", () => (isPointed = false), true);
document.addEventListener("change", (event) => {
  if (isPointed && event.target.matches("[data-submits]")) event.target.form.requestSubmit();
});

document.addEventListener("change", (event) => {
  if (!event.target.matches("[data-ticks]")) return;
  const boxes = event.target.closest("table").querySelectorAll("tbody input[type=checkbox]");
  for (const box of boxes) box.checked = event.target.checked;
});

/* ---------- keys ---------- */

let after = ""; // the key before, if it was `g`
let forget = 0;

function rowsHere() {
  return [...document.querySelectorAll("tbody[data-rows] > tr")];
}

function move(step) {
  const rows = rowsHere();
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.hasAttribute("data-at"));
  const next = rows[Math.min(rows.length - 1, Math.max(0, at < 0 ? 0 : at + step))];
  rows[at]?.removeAttribute("data-at");
  next.setAttribute("data-at", "");
  next.scrollIntoView({ block: "nearest" });
  next.querySelector("a")?.focus({ preventScroll: true });
}

const KEYS = {
  "/": () => document.querySelector("[data-search]")?.focus(),
  "?": () => document.getElementById("keys").showModal(),
  j: () => move(1),
  k: () => move(-1),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    if (event.target.matches("input, textarea, select")) event.target.blur();
    return;
  }
  if (event.target.matches("input, textarea, select") || document.querySelector("dialog[open]")) return;
  if (event.key === "Enter" && !event.target.matches("a, button, summary")) {
    document.querySelector("tr[data-at] a")?.click();
    return;
  }
  if (after === "g") {
    after = "";
    const link = document.querySelector(`a[data-key="${CSS.escape(event.key)}"]`);
    if (link) {
      event.preventDefault();
      link.click();
    }
    return;
  }
  if (event.key === "g") {
    after = "g";
    clearTimeout(forget);
    forget = setTimeout(() => (after = ""), 1500);
    return;
  }
  const act = KEYS[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
});
