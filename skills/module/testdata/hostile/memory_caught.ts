// timeout memory
// Whoever catches it again and again runs out of time.
export async function execute() {
	const all: unknown[] = [];
	for (;;) {
		try { for (;;) all.push(new Array(1e4).fill(1)); } catch { }
	}
}
