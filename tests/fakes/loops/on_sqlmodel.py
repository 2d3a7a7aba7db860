"""Loops of SQLModel."""

from typing import Any

from sqlmodel import Field, Relationship, Session, SQLModel, create_engine, select


class Team(SQLModel, table=True):
    """A team of heroes."""

    id: int | None = Field(default=None, primary_key=True)
    heroes: list["Hero"] = Relationship(back_populates="team")


class Hero(SQLModel, table=True):
    """A hero of a team."""

    id: int | None = Field(default=None, primary_key=True)
    team_id: int = Field(foreign_key="team.id")
    team: Team = Relationship(back_populates="heroes")


engine: Any = None


def prepare(folder: str) -> None:
    """Make ten teams of three heroes."""
    global engine
    engine = create_engine(f"sqlite:///{folder}/sqlmodel.db")
    SQLModel.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Team(id=number) for number in range(1, 11)])
        session.commit()
        session.add_all([Hero(team_id=1 + number % 10) for number in range(30)])
        session.commit()


def one() -> None:
    """One object per hero: thirty rows have ten teams."""
    with Session(engine) as session:
        for hero in session.exec(select(Hero)):
            assert hero.team.id


def many() -> None:
    """A collection per team."""
    with Session(engine) as session:
        for team in session.exec(select(Team)):
            assert len(team.heroes) == 3


def refreshed() -> None:
    """Each hero again."""
    with Session(engine) as session:
        for hero in session.exec(select(Hero)).all():
            session.refresh(hero)


LOOPS = (one, many, refreshed)
