// returned: "none"
export async function execute() {
	const names = ["std", "os", "print", "scriptArgs", "process", "require", "Deno", "Bun", "fetch", "XMLHttpRequest", "WebSocket", "Worker", "WebAssembly",
		"navigator", "performance", "__entropy", "__url", "__intl", "__loadScript", "bjson", "gc"];
	return names.filter((n) => (globalThis as any)[n] !== undefined).join() || "none";
}
