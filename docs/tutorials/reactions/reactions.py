"""Write reactions.csv, and what a laboratory would measure, for the page beside it.

The reactions are Suzuki couplings that nobody has run: yields follow a formula. The
product forms by a first-order reaction whose rate obeys Arrhenius' law. A catalyst
loses its activity above its own temperature, and heat, time and an excess of boronic
acid make by-products.
"""

import csv
import math
import random
from itertools import product
from pathlib import Path

FOLDER = Path(__file__).parent
TEMPERATURES = (40, 60, 80, 100)  # °C
TIMES = (2, 6, 16)  # h
EQUIVALENTS = (1.1, 1.5)  # of the boronic acid
# Relative rate, and price of one reaction.
SOLVENTS = {"water": (0.5, 0.2), "ethanol": (1.0, 0.6), "dioxane": (1.5, 1.9)} | {
    "DMF": (0.8, 1.4)
}
# Relative rate, temperature in °C of half the activity, and price of one reaction.
CATALYSTS = {
    "Pd(OAc)2": (0.6, 75, 2.1),
    "Pd(PPh3)4": (1.0, 95, 4.8),
    "XPhos Pd G3": (2.2, 110, 11.5),
}
ACTIVATION, GAS = 70_000, 8.314  # J/mol, J/(mol K)
NOISE = 1.5  # percentage points of yield

Reaction = tuple[int, int, str, str, float]


def reactions() -> list[Reaction]:
    """All combinations."""
    return [*product(TEMPERATURES, TIMES, SOLVENTS, CATALYSTS, EQUIVALENTS)]


def price(reaction: Reaction) -> float:
    """What one reaction costs, in euros."""
    _, _, solvent, catalyst, equivalents = reaction
    return SOLVENTS[solvent][1] + CATALYSTS[catalyst][2] + 1.4 * equivalents


def outcomes(reaction: Reaction) -> tuple[float, float]:
    """Yield and impurity in percent, without noise."""
    temperature, time, solvent, catalyst, equivalents = reaction
    activity, half, _ = CATALYSTS[catalyst]
    heat = math.exp(-ACTIVATION / GAS * (1 / (temperature + 273) - 1 / 333))
    loss = 1 / (1 + math.exp((temperature - half) / 8))
    rate = 0.15 * activity * SOLVENTS[solvent][0] * equivalents * heat * loss
    converted = 1 - math.exp(-rate * time)
    by_product = 0.012 * heat * math.sqrt(time) * equivalents**2
    by_product *= 1.8 if solvent == "water" else 1.0
    impurity = 1 - math.exp(-by_product)
    return 97 * converted * (1 - impurity), 100 * impurity * converted


def measured(reaction: Reaction, number: int) -> tuple[float, float]:
    """Yield and impurity as a laboratory reads them off, with noise."""
    noise = random.Random(number)
    found, impurity = outcomes(reaction)
    found = min(max(found + noise.gauss(0, NOISE), 0), 99)
    return round(found, 1), round(max(impurity * (1 + noise.gauss(0, 0.05)), 0.1), 1)


def main() -> None:
    """Write the candidates in a shuffled order, as a planner would number them."""
    rows = reactions()
    random.Random(1).shuffle(rows)
    with (FOLDER / "reactions.csv").open("w", newline="", encoding="utf-8") as file:
        write = csv.writer(file, lineterminator="\n").writerow
        write("reaction temperature time solvent catalyst equivalents price".split())
        for number, row in enumerate(rows, start=1):
            heat, time, solvent, catalyst, equivalents = row
            cells = f"{heat} °C", f"{time} h", solvent, catalyst, equivalents
            write([f"R{number:03}", *cells, f"{price(row):.2f}"])


if __name__ == "__main__":
    main()
