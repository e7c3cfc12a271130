"use strict";
// Shows how far the server's start is, and the model's page when it is ready.
(() => {
  const shown = document.querySelector("header [role=status]");

  async function ask() {
    try {
      const response = await fetch("/health");
      if (response.ok) {
        location.reload();
        return;
      }
      const {status, compiled, of} = await response.json();
      shown.textContent = status === "compiling"
        ? `Compiling programs: ${compiled} of ${of} are done.` : "Loading the model.";
    } catch {
      shown.textContent = "The server does not answer.";
    }
    setTimeout(ask, 1000);
  }

  ask();
})();
