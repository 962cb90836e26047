/** What this skill uses of its host: docs/guides/skill-modules.md has all of it. */
export interface Host {
  events: { emitProgress(progress: number, message: string): void };
  llm: {
    complete(request: { purposeId: string; systemPrompt: string; messages: { role: "user" | "assistant"; content: string }[] }): Promise<{ text: string }>;
  };
  run: {
    reportStep(label: string, role?: string): void;
    getStepCount(): number;
    getStepBudget(): number | null;
    checkpoint(): Promise<void>;
    requestInput<Answer>(question: { title: string; message: string; inputSchema: object }): Promise<Answer>;
  };
  workspace: {
    getState(): Promise<State | null>;
    setState(state: State): Promise<void>;
    setPhase(phase: string): Promise<void>;
    setRole(role: string): Promise<void>;
    createArtifact(artifact: { type: string; title: string; content: string; createdByRole?: string }): Promise<{ id: string }>;
    updateArtifact(id: string, update: { content?: string; status?: string }): Promise<{ id: string }>;
  };
}

/** What the workspace keeps of a topic. */
export interface State {
  questions: { question: string; answer?: string }[];
}
