// A folder with the source code that the reader gives: which of its files are the profile's, and their texts.
//
// Does not: send or keep anything. The browser reads a file when it is shown, and forgets it with the page.

// The reader's files by their paths in the folder, and what the profile's paths have before those.
let folderFiles = null;
let folderStart = null;
const LARGEST_TEXT = 2 * 2 ** 20;
// The same rule as in src/page/texts.rs: most files decide, and of several beginnings the longest.
const beginningOf = (paths, isThere) => {
  const votes = new Map();
  for (const path of paths) {
    for (let at = path.indexOf("/"); at >= 0; at = path.indexOf("/", at + 1)) {
      if (isThere(path.slice(at + 1))) votes.set(path.slice(0, at + 1), (votes.get(path.slice(0, at + 1)) || 0) + 1);
    }
  }
  const [best = null] = [...votes].sort((one, other) => other[1] - one[1] || other[0].length - one[0].length)[0] || [];
  return best;
};
const takeFolder = (files) => {
  // The first part of a path is the folder's own name.
  folderFiles = new Map(files.map((file) => [file.webkitRelativePath.split("/").slice(1).join("/"), file]));
  folderStart = beginningOf(lineFiles.keys(), (path) => folderFiles.has(path));
  for (const file of lineFiles.keys()) if (fileOf(file)) texts.delete(file);
  drawLines();
};
const fileOf = (file) => (folderStart !== null && file.startsWith(folderStart) && folderFiles.get(file.slice(folderStart.length))) || null;
const readText = async (file) => {
  const found = fileOf(file);
  if (!found || found.size > LARGEST_TEXT) return;
  try {
    texts.set(file, await found.text());
  } catch {
    // It was moved or changed since the folder was chosen.
    texts.set(file, null);
  }
  drawLines();
};
const drawTextNote = () => {
  const found = fileOf(state.file);
  const said = () => {
    if (typeof texts.get(state.file) === "string") return "";
    if (found && found.size > LARGEST_TEXT) return "This file is too large to show.";
    if (found) return texts.get(state.file) === null ? "This file could not be read. Choose the folder again." : "";
    if (folderFiles && folderStart === null) return "None of the profile's files is in this folder.";
    if (folderFiles || texts.size > 0) return "The folder does not have this file.";
    return "Choose the folder with the source code to see the lines. Your browser reads it, and sends it nowhere.";
  };
  at("sourced").textContent = said();
};
