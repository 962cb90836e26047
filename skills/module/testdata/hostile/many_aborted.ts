// threw: RangeError: 1000 calls wait
export async function execute(args: unknown, host: any) {
	for (let i = 0; i < 2000; i++) {
		const c = new AbortController();
		const call = host.network.fetch("https://example.com/", { signal: c.signal });
		c.abort();
		await call.catch((e: any) => { if (e.name !== "AbortError") throw e; });
	}
}
