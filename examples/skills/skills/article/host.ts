/** What this skill uses of its host: docs/guides/skill-modules.md has all of it. */
export interface Host {
  events: { emitProgress(progress: number, message: string): void };
  filesystem: {
    openFile(path?: string): Promise<{ handleId: string; name: string }>;
    readFile(handleId: string): Promise<string>;
    writeFile(path: string, text: string): Promise<void>;
  };
  llm: {
    complete(request: { purposeId: string; systemPrompt: string; messages: { role: "user" | "assistant"; content: string }[] }): Promise<{ text: string }>;
  };
  run: {
    reportStep(label: string): void;
    checkpoint(): Promise<void>;
    pause(reason: string): Promise<void>;
    requestInput<Answer>(question: { title: string; message: string; inputSchema: object }): Promise<Answer>;
  };
  workspace: {
    setPhase(phase: string): Promise<void>;
    createArtifact(artifact: { type: string; title: string; content: string; status?: string }): Promise<{ id: string }>;
    updateArtifact(id: string, update: { content?: string; status?: string }): Promise<{ id: string }>;
  };
}
