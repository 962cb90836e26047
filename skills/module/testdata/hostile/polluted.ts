// threw: Error
// Who breaks what all objects share breaks its own machine, and its end is told all the same.
export async function execute() {
	for (const proto of [Object.prototype, Array.prototype, Function.prototype, String.prototype, Map.prototype] as any[]) {
		for (const name of ["get", "set", "has", "map", "filter", "slice", "toJSON0", "apply0"]) try { proto[name] = () => { throw new Error("polluted"); }; } catch { }
	}
	throw new Error("own");
}
