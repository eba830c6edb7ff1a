// Type of what config/page-scripts.ts makes of a module for a page: one script, as text.

declare module '*?script' {
  const script: string;
  export default script;
}
