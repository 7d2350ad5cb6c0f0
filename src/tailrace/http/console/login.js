// The login page, which stands at the address that was asked for: after a login that address is loaded again.
//
// The answer to a login is a cookie that no script can read. A page that was reached by a link of another site
// is loaded once more, because a browser sends no SameSite=Strict cookie with such a link.

const form = document.querySelector("form");
const error = form.querySelector("[role=alert]");
const button = form.querySelector("button");

if (document.documentElement.dataset.retry === "yes") {
  location.replace(location.href);
} else {
  button.disabled = false;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (button.disabled) return;
  button.disabled = true;
  button.textContent = "Logging in…";
  error.hidden = true;
  const refusal = await logIn(form.elements.user.value, form.elements.password.value);
  if (!refusal) {
    location.replace(location.href);
    return;
  }
  error.textContent = refusal;
  error.hidden = false;
  button.disabled = false;
  button.textContent = "Log in";
  form.elements.password.select();
});

// Why the login did not succeed, or "".
async function logIn(user, password) {
  try {
    const response = await fetch("/login", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ user, password }),
    });
    if (response.ok) return "";
    const answer = await response.json().catch(() => null);
    return answer?.error?.message ?? `The broker answered ${response.status}. Try again.`;
  } catch {
    return "The broker does not answer. Is it running?";
  }
}
