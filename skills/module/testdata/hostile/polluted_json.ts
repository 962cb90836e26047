// returned threw:
export async function execute() {
	(JSON as any).stringify = () => "}{";
	(JSON as any).parse = () => { throw 1; };
	(Object.prototype as any).toJSON = () => "forged";
	return { honest: true };
}
