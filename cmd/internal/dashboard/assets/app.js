// Keys, and the parts of a page that follow what happens. Every page works without.
"use strict";
(() => {
  const root = document.documentElement;

  // Live parts: a signal, then this page once more, of which what differs takes its place.
  let asking = false, again = false;
  const fields = "input, textarea, select";
  const typed = (field) => {
    if (field.matches("select")) return field.selectedIndex !== Math.max(0, [...field.options].findIndex((o) => o.defaultSelected));
    return field.matches("[type=checkbox], [type=radio]") ? field.checked !== field.defaultChecked : field.value !== field.defaultValue;
  };
  const busy = (part) => part.contains(document.activeElement) && document.activeElement.matches(fields) || [...part.querySelectorAll(fields)].some(typed);
  // What is focused is found again by what it does, and by which of several that do the same it is.
  const doing = (e) => [e.tagName, e.id, e.getAttribute("href"), e.form?.getAttribute("action"), e.name, e.value, e.closest("details")?.id].join("\n");
  const alike = (part, what) => [...part.querySelectorAll("a[href], button, summary, [tabindex]")].filter((e) => doing(e) === what);
  async function refresh() {
    if (asking) { again = true; return; }
    asking = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (!answer.ok) return;
      const next = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of document.querySelectorAll("[data-live]")) {
        const fresh = next.getElementById(part.id);
        // What somebody is typing in, or has typed into and not sent, stays as it is.
        if (!fresh || busy(part)) continue;
        // What was opened stays open, also for the comparison.
        for (const d of part.querySelectorAll("details[id][open]")) next.getElementById(d.id)?.setAttribute("open", "");
        for (const d of part.querySelectorAll("details[id]:not([open])")) next.getElementById(d.id)?.removeAttribute("open");
        if (fresh.innerHTML === part.innerHTML) continue;
        const what = part.contains(document.activeElement) && doing(document.activeElement);
        const which = what && alike(part, what).indexOf(document.activeElement);
        part.replaceChildren(...fresh.childNodes);
        if (what) alike(part, what)[which]?.focus({ preventScroll: true });
      }
    } catch { /* the server is away; EventSource comes back by itself */ }
    finally {
      asking = false;
      if (again) { again = false; refresh(); }
    }
  }
  if (document.querySelector("[data-live]") && window.EventSource) {
    let source = null;
    const listen = () => {
      if (document.hidden) { source?.close(); source = null; return; }
      if (!source) { source = new EventSource("/live"); source.onmessage = refresh; }
    };
    document.addEventListener("visibilitychange", listen);
    window.addEventListener("pagehide", () => source?.close());
    listen();
  }

  // What the model of a run is writing, which is on no record yet. It is shown as text, whatever it says.
  const draft = document.getElementById("draft");
  if (draft && window.EventSource) {
    const shown = draft.querySelector("pre");
    const show = (text) => { shown.textContent = text; draft.hidden = !text; };
    const kinds = ["step.output", "step.draft", "step.finished", "run.finished"].map((k) => `&kind=${k}`).join("");
    let source = null;
    const follow = () => {
      if (document.hidden) { source?.close(); source = null; return; }
      if (source) return;
      source = new EventSource(`/v1/events?live=true&from_now=true&run=${draft.dataset.run}${kinds}`);
      source.onmessage = (message) => {
        const event = JSON.parse(message.data);
        if (event.kind === "step.output") show(shown.textContent + event.data.text);
        else if (event.kind === "step.draft") show(event.data.text);
        else show("");
        if (event.kind === "run.finished") { source.close(); document.removeEventListener("visibilitychange", follow); }
      };
    };
    document.addEventListener("visibilitychange", follow);
    window.addEventListener("pagehide", () => source?.close());
    follow();
  }

  // The theme is the system's until somebody chooses another.
  const theme = document.getElementById("theme");
  const chosen = localStorage.getItem("theme");
  if (chosen) root.dataset.theme = chosen;
  if (theme) {
    theme.hidden = false;
    theme.addEventListener("click", () => {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      localStorage.setItem("theme", root.dataset.theme);
    });
  }

  // A link into something that is closed opens it.
  const reveal = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (!target) return;
    for (let d = target; d; d = d.parentElement) if (d.tagName === "DETAILS") d.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();

  // Keys.
  const pages = { t: "/", i: "/inbox", r: "/runs", j: "/jobs", a: "/agents", w: "/workspaces", s: "/skills", h: "/health" };
  const help = document.getElementById("keys");
  let going = 0;
  const move = (by) => {
    // A row is where its first link leads; it may have others.
    const rows = [...document.querySelectorAll("[data-row]")].map((row) => ({ row, link: [...row.querySelectorAll("a[href]")].find((a) => a.getClientRects().length) })).filter((r) => r.link);
    const at = rows.findIndex((r) => r.row.contains(document.activeElement));
    rows[Math.min(Math.max(at + by, 0), rows.length - 1)]?.link.focus();
  };
  const press = (key) => {
    const what = document.querySelector(`[data-key="${key}"]`);
    if (what?.tagName !== "DETAILS") { what?.focus(); return; }
    what.open = true;
    (what.querySelector(":required") ?? what.querySelector("button, select, input:not([type=hidden])"))?.focus();
  };
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.matches("input, textarea, select")) return;
    if (Date.now() - going < 1000 && pages[e.key]) { location.href = pages[e.key]; return; }
    going = 0;
    switch (e.key) {
      case "g": going = Date.now(); return;
      case "j": move(1); break;
      case "k": move(-1); break;
      case "r": case "p": press(e.key); break;
      case "/": press("/"); break;
      case "?": help?.showModal(); break;
      default: return;
    }
    e.preventDefault();
  });
})();
