// threw: RangeError: 1000 calls wait
export async function execute(args: unknown, host: any) {
	const all = [];
	for (let i = 0; i < 2000; i++) all.push(host.storage.get("k"));
	await Promise.all(all);
}
