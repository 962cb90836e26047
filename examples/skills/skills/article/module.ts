import type { Host } from "./host";

interface Review {
  approve: boolean;
  change?: string;
}

interface Result {
  success: boolean;
  message: string;
  file?: string;
  changes: number;
}

const maxChanges = 3;

const reviewSchema = {
  type: "object",
  properties: {
    approve: { type: "boolean", description: "Is the outline good as it is?" },
    change: { type: "string", description: "What is to change, if it is not" },
  },
  required: ["approve"],
};

/**
 * Makes an article of the note that started the run.
 *
 * While its reader thinks about the outline nothing of it is running. When they have answered, and after a crash, it begins at its first
 * line again, and each call that it has made before is answered as it was then: the model is not asked twice for the same
 * outline, and no artifact is made twice. So the code reads as if it had waited.
 */
export async function execute(args: { proofread?: boolean }, host: Host): Promise<Result> {
  const file = await host.filesystem.openFile();
  const note = await host.filesystem.readFile(file.handleId);
  const name = file.name.replace(/\.[^.]*$/, "");

  await begin(host, "outline", 0);
  let outline = await ask(host, "outline", "Write an outline of an article from this note: at most five points, one a line.", note);
  const article = await host.workspace.createArtifact({ type: "markdown", title: name, content: outline, status: "outline" });

  for (let changes = 0; ; changes++) {
    const review = await host.run.requestInput<Review>({ title: `The outline of ${name.slice(0, 100)}`, message: outline, inputSchema: reviewSchema });
    if (review.approve) {
      return write(host, { id: article.id, name, note, outline, changes, proofread: args.proofread ?? false });
    }
    if (changes === maxChanges) {
      await host.workspace.updateArtifact(article.id, { status: "given up" });
      return { success: false, message: `after ${changes} changes the outline of ${name} is still not right`, changes };
    }

    host.run.reportStep(`change ${changes + 1}`);
    const change = review.change?.trim() || "Try something else.";
    outline = await ask(host, "outline", "Write an outline again, as its reader wants it: at most five points, one a line.", `The note:\n${note}\n\nThe outline:\n${outline}\n\nThe change: ${change}`);
    await host.workspace.updateArtifact(article.id, { content: outline, status: "outline" });
  }
}

/** Writes the article of an outline that was approved: a draft, a polished text, a file. */
async function write(host: Host, a: { id: string; name: string; note: string; outline: string; changes: number; proofread: boolean }): Promise<Result> {
  await begin(host, "draft", 0.4);
  const draft = await ask(host, "draft", "Write the article of this outline. Say nothing that is not in the note.", `The note:\n${a.note}\n\nThe outline:\n${a.outline}`);
  await host.workspace.updateArtifact(a.id, { content: draft, status: "draft" }); // the next version; the id stays good
  await host.run.checkpoint();

  await begin(host, "polish", 0.7);
  const text = await ask(host, "polish", "Polish this article: shorten it, and keep what it says.", draft);
  await host.workspace.updateArtifact(a.id, { content: text, status: "polished" });
  if (a.proofread) {
    await host.run.pause(`The article ${a.name} is ready, and its text an artifact of the workspace. Have it go on to write the file.`);
  }

  await begin(host, "write", 0.9);
  const file = `${a.name}.md`;
  await host.filesystem.writeFile(file, `# ${a.name}\n\n${text}\n`);
  await host.workspace.updateArtifact(a.id, { status: "done" });
  await host.workspace.setPhase("done");
  return { success: true, message: `wrote ${file} after ${a.changes} changes of its outline`, file, changes: a.changes };
}

async function begin(host: Host, phase: string, progress: number): Promise<void> {
  host.run.reportStep(phase);
  host.events.emitProgress(progress, phase);
  await host.workspace.setPhase(phase);
}

async function ask(host: Host, purposeId: string, systemPrompt: string, content: string): Promise<string> {
  const answer = await host.llm.complete({ purposeId, systemPrompt, messages: [{ role: "user", content }] });
  return answer.text.trim();
}
