// threw: InternalError: stack overflow
export async function execute() {
	let p: any = {};
	for (let i = 0; i < 1e5; i++) p = new Proxy(p, {});
	return p.name;
}
