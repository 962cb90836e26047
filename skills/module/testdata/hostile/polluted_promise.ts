// returned threw stalled:
export async function execute() {
	(Promise.prototype as any).then = () => {};
	(globalThis as any).Promise = undefined;
	return 1;
}
