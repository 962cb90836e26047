/**
 * A decimal number as a whole number of its smallest parts. Money is not added up as `number`, in which 0.1 + 0.2 is
 * 0.30000000000000004.
 */
export class Decimal {
  private constructor(private readonly parts: bigint, private readonly places: number) {}

  static readonly zero = new Decimal(0n, 0);

  /** Reads "-1234.50"; undefined where a text is no such number. */
  static read(text: string): Decimal | undefined {
    const found = /^([+-]?)(\d+)(?:\.(\d+))?$/.exec(text);
    if (!found) return undefined;

    const [, sign, whole, fraction = ""] = found;
    const parts = BigInt(whole + fraction);
    return new Decimal(sign === "-" ? -parts : parts, fraction.length);
  }

  plus(other: Decimal): Decimal {
    const places = Math.max(this.places, other.places);
    return new Decimal(this.scaled(places) + other.scaled(places), places);
  }

  toString(): string {
    const digits = (this.parts < 0n ? -this.parts : this.parts).toString().padStart(this.places + 1, "0");
    const at = digits.length - this.places;
    return (this.parts < 0n ? "-" : "") + digits.slice(0, at) + (this.places > 0 ? "." + digits.slice(at) : "");
  }

  private scaled(places: number): bigint {
    return this.parts * 10n ** BigInt(places - this.places);
  }
}
