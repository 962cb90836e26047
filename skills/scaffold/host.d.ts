// What a module gets of its host: each part is there where the manifest declares it and the agent is granted it, and else undefined.
export interface Host {
  skillId: string; executionId: string; runId: string;
  config?: object; // the settings of the skill

  // always; what is said is in `rouse logs RUN`, progress at most twice a second, and the last of it
  log: ((level: "debug" | "info" | "warn" | "error", message: string) => void) &
    Record<"debug" | "info" | "warn" | "error", (message: string, data?: object) => void>;
  events: { emitProgress(progress: number, message: string): Promise<void>; emitCustom(type: string, payload: unknown): Promise<void> };

  // permission storage: 10 MiB for each agent and skill, values of 1 MiB; in HOME/storage, never the agent's database
  storage?: { get(key: string): Promise<unknown>; set(key: string, value: unknown): Promise<void>;
              delete(key: string): Promise<void>; list(prefix?: string): Promise<string[]> };

  // permission network, and a host in grants: network; networkRules of the manifest have to cover each request and each redirect
  // (dot segments are resolved first; a path with %2e, %2f, %5c or %25 is covered only by a rule for all paths of a host, as https://api.example.com/*)
  network?: { fetch(url: string, init?: { method?: string; headers?: Record<string, string>; body?: string }): Promise<Response> };

  // llmUsage, for the purposes that it names; the agent's model, with its bounds and budgets
  llm?: { complete(q: { purposeId: string; systemPrompt?: string; messages: { role: "user" | "assistant"; content: string }[];
                        temperature?: number; maxTokens?: number }): Promise<{ text: string; tokensUsed: { prompt: number; completion: number } }> };

  // requiredBindings, each a secret of its name in grants: secrets
  vault?: { resolveBinding(name: string): Promise<string> };

  // oauth, for the providers that it names; see Signing in
  oauth?: { authorize(providerId: string): Promise<"authorized">; authStatus(providerId: string): Promise<"authorized" | "expired" | "unauthorized">;
            getToken(providerId: string): Promise<string>; refresh(providerId: string): Promise<string> };

  // permission filesystem: the folders of the agent; writeFile unless each scope is "read". An id is a path, too
  filesystem?: { openFile(path?: string): Promise<Handle>;       // without a path the file that started the run
                 openDirectory(path?: string): Promise<Handle>;  // without a path the working folder
                 listHandles(): Promise<Handle[]>;
                 listDirectory(path?: string): Promise<{ name: string; type: "file" | "directory"; path: string }[]>;
                 readFile(handleId: string): Promise<string>;    // UTF-8, 8 MiB
                 writeFile?(handleId: string, data: string): Promise<void> }; // 30,000 characters; rouse undo takes it back

  // bridgeRequirement optional or required, and an agent that may run programs (shell_run): one program, in its working folder
  tools?: { invoke(name: "system_execute_command", command: Command): Promise<{ stdout: string; stderr: string; exitCode: number }>;
            // and, under either name, the tools that skills.settings names, with their arguments and results
            callTool(name: string, args: object): Promise<object>;
            // where the manifest has tools: one more for models, see below
            registerTool(t: { name: string; description: string; inputSchema?: object; handlerExport: string }): Promise<{ name: string }> };
  bridge?: { isAvailable(): boolean;
             executeCommand(command: Command): Promise<Decided>;
             waitForJob(bridgeRunId: string): Promise<{ status: "completed" | "failed" | "terminated"; exitCode: number; stdout: string; stderr: string; reason?: string }>;
             locateTools(ids: string[]): Promise<{ tools: { id: string; status: "installed" | "not_installed" }[] }>;
             // where the manifest requires system_info
             systemInfo?(): Promise<{ platform: "macos" | "windows" | "linux"; arch: string; shell: string; packageManagers: string[] }>;
             // asks you in the inbox to install it, and goes on when it is there; rouse installs nothing by itself
             installTool(q: { toolId: string; reason?: string }): Promise<Decided> };

  // modes flow and agentic; pause unless longRunningSupport is none, requestInput with userInputSupport
  run?: { reportStep(label: string, role?: string): Promise<void>; // role with supportsRoleBasedExecution
          getStepCount(): number; getStepBudget(): number | null;
          checkpoint(state?: object): Promise<void>;               // createCheckpoint is the same
          requestInput(q: { title: string; message?: string; inputSchema?: object }): Promise<unknown>; // requestUserInput is the same
          pause(reason: string): Promise<never>;
          updateProgress(p: { phase?: string; step?: string; percent?: number; message?: string }): Promise<void> };

  // workspaceSupport optional or required, and a job that names one
  workspace?: { getState(): Promise<object | null>;               // null until one was set
                setState(state: object): Promise<void>;           // replaces it, 256 KiB
                createArtifact(a: { type?: string; title: string; content?: unknown; status?: string; parentArtifactId?: string; createdByRole?: string }): Promise<Artifact>; // 8 MiB
                updateArtifact(id: string, u: { title?: string; status?: string; content?: unknown }): Promise<Artifact>;
                listArtifacts(): Promise<Artifact[]>;
                setPhase(phase: string): Promise<void>; setRole(role: string): Promise<void>;
                attachApprovalRef(approvalId: string, kind?: string): Promise<void> };
  // permission wasm, for the modules that wasm declares
  wasm?: { instantiate(moduleId: string, imports?: Record<string, Record<string, Function>>): Promise<{
             exports: Record<string, (...args: (number | bigint)[]) => number | bigint | (number | bigint)[] | undefined>;
             memory?: { size(): number; read(offset: number, length: number): Uint8Array; write(offset: number, bytes: Uint8Array): void } }> };
}
export type Artifact = { id: string; type: string; title: string; status: string; approval?: string; version: number; parentArtifactId?: string };
export type Handle = { handleId: string; name: string; kind: "file" | "directory" };
export type Command = { command: string; args?: string[]; workingDirectory?: string | null; timeoutMs?: number; reason?: string; requestId?: string };
export type Decided =
  | { accepted: true; runId: string; bridgeRunId: string; requestId?: string; decision: { source: "user" | "whitelist"; message: string } }
  | { accepted: false; requestId?: string; code: "rejected_by_user" | "bridge_policy_denied" | "invalid_request"; message: string; reason: { code: string; message: string } };
