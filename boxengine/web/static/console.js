"use strict";
(() => {
  const zoned = new Intl.DateTimeFormat("en-GB", { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" });
  const today = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

  // Moments come in UTC; people read them in their own zone.
  const localize = (root) => {
    for (const element of root.querySelectorAll("time[datetime]")) {
      const moment = new Date(element.dateTime);
      if (Number.isNaN(moment.getTime())) continue;
      element.title = element.dateTime;
      element.textContent = (moment.toDateString() === new Date().toDateString() ? today : zoned).format(moment);
    }
  };

  // What is renewed under somebody's hands keeps its focus.
  const renew = (target, html) => {
    const links = (root) => [...root.querySelectorAll("a[href], button")];
    const focused = target.contains(document.activeElement) ? document.activeElement : null;
    const place = focused && [focused.getAttribute("href"), focused.textContent];
    const scrolled = [...target.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    target.innerHTML = html;
    localize(target);
    [...target.querySelectorAll(".scroll")].forEach((each, at) => { each.scrollLeft = scrolled[at] || 0; });
    if (place) {
      const same = links(target).find((each) => each.getAttribute("href") === place[0]);
      if (same) same.focus({ preventScroll: true });
    }
  };

  const watch = (target) => {
    const state = document.querySelector("[data-live-state]");
    const said = document.createElement("p");
    said.className = "unseen";
    said.setAttribute("role", "status");
    document.body.append(said);
    const show = (on) => {
      state.hidden = false;
      state.classList.toggle("on", on);
      state.querySelector(".label").textContent = on ? "live" : "not live";
    };
    let sentence = null;
    let source = null;
    let again = 0;
    const open = () => {
      source = new EventSource(target.dataset.events);
      source.addEventListener("look", (event) => {
        show(true);
        renew(target, JSON.parse(event.data));
        const first = target.querySelector(".sentence, .fine");
        const text = first ? first.textContent.trim() : "";
        if (sentence !== null && text !== sentence) said.textContent = text;
        sentence = text;
        document.dispatchEvent(new Event("boxengine:look"));
      });
      source.addEventListener("error", () => {
        show(false);
        // The browser itself connects again after a broken connection, but not after an answer such as a proxy's 502.
        if (source.readyState === EventSource.CLOSED) again = setTimeout(open, 3000);
      });
    };
    // A tab that nobody sees asks nothing of the server.
    document.addEventListener("visibilitychange", () => {
      clearTimeout(again);
      source.close();
      if (document.hidden) show(false); else open();
    });
    open();
  };

  localize(document);
  document.querySelectorAll("[data-live]").forEach(watch);
  document.body.addEventListener("htmx:afterSettle", (event) => localize(event.detail.elt.parentElement || document));
})();
