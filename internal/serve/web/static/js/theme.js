// Sets the theme before anything is drawn, which is why this is not a module.
'use strict';
try {
  const theme = localStorage.getItem('weir.theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch {
  // Without storage, the system's theme applies.
}
