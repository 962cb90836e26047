/** What the workspace keeps from one list to the next. Its version is workspaceSchemaVersion in the manifest. */
interface State {
  counts: Record<string, number>; // by the names of things
  list: string; // the name of the file that they are from
  artifact: string; // the id of the newest report
}

interface Host {
  filesystem: {
    openFile(path?: string): Promise<{ handleId: string; name: string }>;
    readFile(handleId: string): Promise<string>;
  };
  workspace: {
    getState(): Promise<State | null>; // null: nobody has written one yet
    setState(state: State): Promise<void>;
    createArtifact(artifact: { type: string; title: string; content: string; parentArtifactId?: string }): Promise<{ id: string }>;
  };
}

/**
 * Says what changed since the list before.
 *
 * Each run is one call, and knows of the others by its workspace alone. The report is an artifact, of which each run makes the
 * next version.
 */
export async function execute(_args: object, host: Host) {
  const file = await host.filesystem.openFile();
  const counts = read(file.name, await host.filesystem.readFile(file.handleId));
  const before = await host.workspace.getState();

  const known = before?.counts ?? {};
  const added = Object.keys(counts).filter((name) => !Object.hasOwn(known, name)).map((name) => `${name} ${counts[name]}`);
  const removed = Object.keys(known).filter((name) => !Object.hasOwn(counts, name));
  const changed = Object.keys(counts)
    .filter((name) => Object.hasOwn(known, name) && known[name] !== counts[name])
    .map((name) => `${name} ${known[name]} → ${counts[name]}`);

  const message = before === null ? `${file.name} is the first list: ${added.length} things` : describe(before.list, { added, removed, changed });
  const report = await host.workspace.createArtifact({
    type: "markdown",
    title: "Stock",
    content: `# ${file.name}\n\n${message}\n`,
    parentArtifactId: before?.artifact,
  });
  await host.workspace.setState({ counts, list: file.name, artifact: report.id });
  return { message, added, removed, changed };
}

/** Reads lines like "red apples 12". */
function read(file: string, text: string): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const [i, line] of text.split("\n").entries()) {
    if (line.trim() === "") continue;

    const found = /^\s*(.*\S)\s+(\d+)\s*$/.exec(line);
    if (!found) throw new Error(`line ${i + 1} of ${file} is not a name and a number: ${JSON.stringify(line.trim())}`);
    counts[found[1]] = Number(found[2]);
  }
  return counts;
}

function describe(list: string, lines: Record<string, string[]>): string {
  const parts = Object.entries(lines).filter(([, names]) => names.length > 0).map(([what, names]) => `${what}: ${names.join(", ")}`);
  return parts.length > 0 ? `since ${list} ${parts.join("; ")}` : `nothing changed since ${list}`;
}
